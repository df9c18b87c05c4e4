//! What all answers of the dialect share: their head, their usage, and the answer that is
//! collected before it is sent as one body.

use relight_protocol::{FinishReason, ModelCard, TokenLogprob, Usage};
use serde::Serialize;

use crate::clock::unix_seconds;
use crate::generation::Progress;
use crate::identifier::unique_name;

/// What stays the same in every chunk of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    /// Equal fingerprints and seeds give equal answers.
    pub(super) fingerprint: String,
}

impl Head {
    pub(crate) fn new(id_prefix: &str, model: String, card: Option<&ModelCard>) -> Self {
        let fingerprint = card.map_or(0, |card| card.fingerprint);
        Self {
            id: unique_name(id_prefix),
            created: unix_seconds(),
            model,
            fingerprint: format!("fp_{fingerprint:032x}"),
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct UsageBody {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptDetails,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}

impl From<Usage> for UsageBody {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
            prompt_tokens_details: PromptDetails {
                cached_tokens: usage.cached_tokens,
            },
        }
    }
}

/// One choice, whole or as far as it has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerChoice {
    pub(super) text: String,
    /// Of each token, if asked for: where its text begins, in characters, and the chosen
    /// token with its alternatives.
    pub(super) logprobs: Vec<(usize, Vec<TokenLogprob>)>,
    text_chars: usize,
    pub(super) reason: Option<FinishReason>,
}

impl AnswerChoice {
    fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
        self.text_chars += text.chars().count();
    }
}

/// An answer that is sent as one body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(super) choices: Vec<AnswerChoice>,
    pub(super) usage: Usage,
}

impl Answer {
    pub(crate) fn new(choice_count: usize) -> Self {
        Self {
            choices: vec![AnswerChoice::default(); choice_count],
            usage: Usage::default(),
        }
    }

    /// Takes in whatever is not a failure.
    pub(crate) fn push(&mut self, progress: Progress) {
        match progress {
            Progress::Accepted { choices, echo } => {
                let echo = echo.unwrap_or_default();
                for choice in self.choices.get_mut(choices).into_iter().flatten() {
                    choice.push_text(&echo);
                }
            }
            Progress::Delta { choice, delta } => {
                if let Some(choice) = self.choices.get_mut(choice) {
                    if !delta.logprobs.is_empty() {
                        choice.logprobs.push((choice.text_chars, delta.logprobs));
                    }
                    choice.push_text(&delta.text);
                }
            }
            Progress::ChoiceFinished { choice, finished } => {
                if let Some(choice) = self.choices.get_mut(choice) {
                    choice.push_text(&finished.text);
                    choice.reason = Some(finished.reason);
                }
            }
            Progress::Finished(usage) => self.usage = usage,
            Progress::Failed(_) => {}
        }
    }

    /// The texts so far.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.choices.into_iter().map(|choice| choice.text).collect()
    }
}
