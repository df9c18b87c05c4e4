//! Answers of Completions, as one body and as a stream of chunks.

use relight_protocol::{TokenLogprob, Usage};
use serde::Serialize;

use super::answer::{Answer, AnswerChoice, Head, UsageBody};
use super::logprob::CompletionLogprobs;
use crate::event_body::{EventWriter, Events};
use crate::generation::{Progress, finish_word};

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: &'a [BodyChoice<'a>],
    /// Absent, `null`, or there: if usage was asked for, every chunk has the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<UsageBody>>,
}

/// A choice has the same form in a body and in a chunk.
#[derive(Serialize)]
struct BodyChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
}

/// The body of an answer that is not streamed. `top_max` alternatives are listed per token.
pub(crate) fn completion_body(
    head: &Head,
    answer: &Answer,
    top_max: usize,
) -> Result<String, serde_json::Error> {
    let choices = answer.choices.iter().enumerate();
    let choices: Vec<BodyChoice<'_>> = choices
        .map(|(index, choice)| body_choice(index, choice, top_max))
        .collect();
    serde_json::to_string(&body(head, &choices, Some(Some(answer.usage))))
}

fn body_choice(index: usize, choice: &AnswerChoice, top_max: usize) -> BodyChoice<'_> {
    let mut logprobs = CompletionLogprobs::default();
    for (text_offset, token) in &choice.logprobs {
        logprobs.push(token, *text_offset, top_max);
    }
    BodyChoice {
        index,
        text: &choice.text,
        logprobs: logprobs.into_option(),
        finish_reason: choice.reason.map(finish_word),
    }
}

fn body<'a>(
    head: &'a Head,
    choices: &'a [BodyChoice<'a>],
    usage: Option<Option<Usage>>,
) -> Body<'a> {
    Body {
        id: &head.id,
        object: "text_completion",
        created: head.created,
        model: &head.model,
        system_fingerprint: &head.fingerprint,
        choices,
        usage: usage.map(|usage| usage.map(UsageBody::from)),
    }
}

/// Writes the chunks of a streamed answer.
#[derive(Debug)]
pub(crate) struct CompletionWriter {
    head: Head,
    /// Characters sent of each choice.
    text_chars: Vec<usize>,
    top_max: usize,
    include_usage: bool,
}

impl CompletionWriter {
    pub(crate) fn new(
        head: Head,
        choice_count: usize,
        top_max: usize,
        include_usage: bool,
    ) -> Self {
        Self {
            head,
            text_chars: vec![0; choice_count],
            top_max,
            include_usage,
        }
    }

    fn push_text(&mut self, index: usize, text: &str, token: &[TokenLogprob], events: &mut Events) {
        // A token whose text is still withheld is told only where its probability is wanted.
        if text.is_empty() && token.is_empty() {
            return;
        }
        let mut logprobs = CompletionLogprobs::default();
        if let Some(chars) = self.text_chars.get_mut(index) {
            logprobs.push(token, *chars, self.top_max);
            *chars += text.chars().count();
        }
        let choice = BodyChoice {
            index,
            text,
            logprobs: logprobs.into_option(),
            finish_reason: None,
        };
        self.push_chunk(&[choice], None, events);
    }

    fn push_chunk(&self, choices: &[BodyChoice<'_>], usage: Option<Usage>, events: &mut Events) {
        let usage = self.include_usage.then_some(usage);
        events.push_json(&body(&self.head, choices, usage));
    }
}

impl EventWriter for CompletionWriter {
    fn write(&mut self, progress: Progress, events: &mut Events) {
        match progress {
            Progress::Accepted { choices, echo } => {
                let echo = echo.unwrap_or_default();
                for choice in choices {
                    self.push_text(choice, &echo, &[], events);
                }
            }
            Progress::Delta { choice, delta } => {
                self.push_text(choice, &delta.text, &delta.logprobs, events);
            }
            Progress::ChoiceFinished { choice, finished } => {
                let last = BodyChoice {
                    index: choice,
                    text: &finished.text,
                    logprobs: None,
                    finish_reason: Some(finish_word(finished.reason)),
                };
                self.push_chunk(&[last], None, events);
            }
            Progress::Finished(usage) => {
                if self.include_usage {
                    self.push_chunk(&[], Some(usage), events);
                }
                events.push_done();
            }
            Progress::Failed(_) => {}
        }
    }
}
