//! The private state of one choice: sampler, detokenizer, stop matcher and the rules for its
//! end. All of it follows from the request and the tokens drawn so far, so it is never saved:
//! a resumed choice is fed its committed tokens again.

use relight_model::sampler::{SampleError, Sampler, are_usable};
use relight_model::text::{Detokenizer, StopMatcher};
use relight_protocol::{Fault, FinishReason, Phase, TokenId, TokenLogprob};

use crate::containment::enter;
use crate::language::Language;

/// When a choice ends.
#[derive(Clone, Debug)]
pub(crate) struct EndRules {
    /// Tokens that end it, ascending.
    pub(crate) ending: Vec<u32>,
    /// Tokens that are never drawn, because the request wants to go on past them.
    pub(crate) banned: Vec<u32>,
    /// Tokens before which nothing but `tokens_max` ends it.
    pub(crate) tokens_min: u32,
    /// Tokens after which it ends in any case.
    pub(crate) tokens_max: u32,
    /// Whether what ended it stays in the text.
    pub(crate) include_stop: bool,
}

/// The parts of a new completion.
#[derive(Debug)]
pub(crate) struct CompletionParts {
    /// Has seen the prompt.
    pub(crate) sampler: Sampler,
    pub(crate) matcher: StopMatcher,
    pub(crate) rules: EndRules,
    /// Tokens of the prompt: the position of the first token drawn.
    pub(crate) prompt_count: u32,
}

/// A token that was drawn.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) token: u32,
    /// The chosen token first, then the best alternatives; empty if not asked for.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// What one more token has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) token_index: u32,
    /// Bytes of text before `text`.
    pub(crate) text_offset: u32,
    /// What the token released.
    pub(crate) text: String,
}

/// How a choice has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) reason: FinishReason,
    pub(crate) text_offset: u32,
    /// What was withheld until then.
    pub(crate) text: String,
}

/// One choice, private to its request.
#[derive(Debug)]
pub(crate) struct Completion<'a> {
    language: &'a Language,
    parts: CompletionParts,
    detokenizer: Detokenizer<'a>,
    token_count: u32,
    text_bytes: u32,
    end: Option<End>,
}

impl<'a> Completion<'a> {
    pub(crate) fn new(language: &'a Language, parts: CompletionParts) -> Self {
        let mut completion = Self {
            language,
            parts,
            detokenizer: Detokenizer::continuation(language.tokenizer()),
            token_count: 0,
            text_bytes: 0,
            end: None,
        };
        completion.end_if_full();
        completion
    }

    pub(crate) fn token_count(&self) -> u32 {
        self.token_count
    }

    /// Tokens after which it ends in any case.
    pub(crate) fn tokens_max(&self) -> usize {
        usize::try_from(self.parts.rules.tokens_max).unwrap_or(usize::MAX)
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether `logits`, (vocabulary), are finite as far as this choice reads them.
    pub(crate) fn can_draw_from(&self, logits: &[f32]) -> bool {
        let vocabulary = self.language.tokenizer().vocabulary_size();
        let count = logits.len().min(vocabulary);
        are_usable(logits.get(..count).unwrap_or_default())
    }

    /// Draws the next token. `logits`: (vocabulary), scratch afterwards.
    ///
    /// # Errors
    /// `NonFiniteLogits`, or `Internal` if no token is possible.
    pub(crate) fn draw(&mut self, logits: &mut [f32]) -> Result<Drawn, Fault> {
        enter(Phase::Sample);
        let rules = &self.parts.rules;
        let mut banned = rules.banned.clone();
        if self.token_count < rules.tokens_min {
            banned.extend(&rules.ending);
        }
        // Rows beyond the vocabulary are padding of the matrix.
        let vocabulary = self.language.tokenizer().vocabulary_size();
        let count = logits.len().min(vocabulary);
        let logits = logits.get_mut(..count).unwrap_or_default();
        let position = u64::from(self.parts.prompt_count) + u64::from(self.token_count);
        let choice = self
            .parts
            .sampler
            .sample(logits, position, &banned)
            .map_err(|error| match error {
                SampleError::NotFinite => Fault::NonFiniteLogits,
                SampleError::NoCandidate => Fault::Internal {
                    phase: Phase::Sample,
                },
            })?;
        let logprobs = choice.logprobs.iter().map(|entry| TokenLogprob {
            token: TokenId(entry.token),
            logprob: entry.logprob,
            bytes: self.bytes_of(entry.token),
        });
        Ok(Drawn {
            token: choice.token,
            logprobs: logprobs.collect(),
        })
    }

    fn bytes_of(&self, token: u32) -> Vec<u8> {
        let bytes = self.language.tokenizer().token_bytes(token);
        bytes.unwrap_or_default().to_vec()
    }

    /// Takes the next token of the choice, drawn just now or by an earlier engine. After an
    /// end, nothing comes of it.
    pub(crate) fn accept(&mut self, token: u32) -> Piece {
        enter(Phase::Sample);
        self.parts.sampler.observe(token);
        enter(Phase::Detokenize);
        let token_index = self.token_count;
        let may_stop = token_index >= self.parts.rules.tokens_min;
        self.token_count += 1;
        if self.end.is_some() {
            return self.release(token_index, String::new());
        }
        let is_ending = may_stop && self.parts.rules.ending.binary_search(&token).is_ok();
        let mut text = String::new();
        if !is_ending || self.parts.rules.include_stop {
            text = self.detokenizer.push(token);
        }
        let mut is_stopped = is_ending;
        let mut tail = None;
        if may_stop {
            let released = self.parts.matcher.push(&text);
            text = released.text;
            if released.stop.is_some() {
                is_stopped = true;
                tail = Some(String::new());
            }
        }
        let piece = self.release(token_index, text);
        if is_stopped {
            let tail = tail.unwrap_or_else(|| self.withheld());
            self.end_with(FinishReason::Stop, tail);
        } else {
            self.end_if_full();
        }
        piece
    }

    fn release(&mut self, token_index: u32, text: String) -> Piece {
        let text_offset = self.text_bytes;
        self.text_bytes += byte_count(&text);
        Piece {
            token_index,
            text_offset,
            text,
        }
    }

    fn end_if_full(&mut self) {
        if self.end.is_none() && self.token_count >= self.parts.rules.tokens_max {
            let tail = self.withheld();
            self.end_with(FinishReason::Length, tail);
        }
    }

    /// Text that was held back for what might have come.
    fn withheld(&mut self) -> String {
        let released = self.parts.matcher.push(&self.detokenizer.finish());
        let mut text = released.text;
        if released.stop.is_none() {
            text.push_str(&self.parts.matcher.finish());
        }
        text
    }

    fn end_with(&mut self, reason: FinishReason, text: String) {
        let text_offset = self.text_bytes;
        self.text_bytes += byte_count(&text);
        self.end = Some(End {
            reason,
            text_offset,
            text,
        });
    }
}

/// A completion's text is bounded by the context times the longest token, far below 4 GiB.
fn byte_count(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
