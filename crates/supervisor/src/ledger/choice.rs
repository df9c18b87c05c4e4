//! The record of one choice: its committed tokens and how far its text has gone.

use relight_protocol::{
    ChoiceFinished, ChoiceIndex, ChoiceProgress, Delta, FinishReason, RequestId, TokenId, limits,
};

use super::Violation;

/// One choice of a request. Empty at first.
#[derive(Debug, Default)]
pub struct Choice {
    /// Index 0 first.
    tokens: Vec<TokenId>,
    /// Bytes of text delivered.
    text_bytes: u32,
    /// The last of them, to compare with what an engine says about them again.
    tail: String,
    finish: Option<FinishReason>,
}

/// Whose claim is checked; only for violations.
#[derive(Clone, Copy)]
struct Whose {
    id: RequestId,
    choice: ChoiceIndex,
}

impl Choice {
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Also the index of the next token.
    #[must_use]
    pub fn token_count(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    #[must_use]
    pub fn text_bytes(&self) -> u32 {
        self.text_bytes
    }

    /// How the choice ended, if it has.
    #[must_use]
    pub fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    #[cfg(test)]
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail.len()
    }

    pub(super) fn progress(&self, index: u16) -> ChoiceProgress {
        ChoiceProgress {
            choice: ChoiceIndex(index),
            tokens: self.tokens.clone(),
            finished: self.finish.is_some(),
        }
    }

    pub(super) fn commit_delta(
        &mut self,
        mut delta: Delta,
        tokens_max: u32,
    ) -> Result<Option<Delta>, Violation> {
        let whose = Whose {
            id: delta.id,
            choice: delta.choice,
        };
        let Whose { id, choice } = whose;
        let index = delta.token_index;
        let expected = self.token_count();
        if index < expected {
            return self.check_repeated(whose, &delta).map(|()| None);
        }
        if index > expected {
            return Err(Violation::TokenSkipped {
                id,
                choice,
                expected,
                found: index,
            });
        }
        if self.finish.is_some() {
            return Err(Violation::AfterEnd { id, choice });
        }
        if index >= tokens_max {
            return Err(Violation::TooManyTokens { id, choice, index });
        }
        self.commit_text(whose, &mut delta.text_offset, &mut delta.text)?;
        self.tokens.push(delta.token);
        Ok(Some(delta))
    }

    pub(super) fn commit_end(
        &mut self,
        mut finished: ChoiceFinished,
    ) -> Result<Option<ChoiceFinished>, Violation> {
        let whose = Whose {
            id: finished.id,
            choice: finished.choice,
        };
        let Whose { id, choice } = whose;
        let expected = self.token_count();
        if finished.token_count != expected {
            return Err(Violation::WrongTokenCount {
                id,
                choice,
                expected,
                found: finished.token_count,
            });
        }
        if let Some(reason) = self.finish {
            self.check_text(whose, finished.text_offset, &finished.text)?;
            let is_same =
                reason == finished.reason && self.is_known(finished.text_offset, &finished.text);
            return if is_same {
                Ok(None)
            } else {
                Err(Violation::AfterEnd { id, choice })
            };
        }
        self.commit_text(whose, &mut finished.text_offset, &mut finished.text)?;
        self.finish = Some(finished.reason);
        Ok(Some(finished))
    }

    fn check_repeated(&self, whose: Whose, delta: &Delta) -> Result<(), Violation> {
        let Whose { id, choice } = whose;
        let index = delta.token_index;
        let known = usize::try_from(index).ok().and_then(|i| self.tokens.get(i));
        if known != Some(&delta.token) {
            return Err(Violation::DifferentToken { id, choice, index });
        }
        self.check_text(whose, delta.text_offset, &delta.text)?;
        if self.is_known(delta.text_offset, &delta.text) {
            Ok(())
        } else {
            let offset = delta.text_offset;
            Err(Violation::DifferentText { id, choice, offset })
        }
    }

    /// Whether a claim adds no byte. Text of more than `u32::MAX` bytes adds some.
    fn is_known(&self, offset: u32, text: &str) -> bool {
        end_of(offset, text).is_some_and(|end| end <= self.text_bytes)
    }

    /// Appends the part of `text` that is not recorded yet, and cuts the claim down to it.
    fn commit_text(
        &mut self,
        whose: Whose,
        offset: &mut u32,
        text: &mut String,
    ) -> Result<(), Violation> {
        self.check_text(whose, *offset, text)?;
        let Whose { id, choice } = whose;
        let too_long = Violation::DifferentText {
            id,
            choice,
            offset: *offset,
        };
        let end = end_of(*offset, text).ok_or_else(|| too_long.clone())?;
        let overlap = self.text_bytes.saturating_sub(*offset);
        let overlap = usize::try_from(overlap).unwrap_or(usize::MAX);
        let fresh = text.get(overlap.min(text.len())..).ok_or(too_long)?;
        if overlap > 0 {
            *text = fresh.to_owned();
        }
        *offset = self.text_bytes;
        self.text_bytes = self.text_bytes.max(end);
        self.tail.push_str(text);
        self.shorten_tail();
        Ok(())
    }

    /// Compares a claim with the bytes it repeats, as far back as the tail goes.
    fn check_text(&self, whose: Whose, offset: u32, text: &str) -> Result<(), Violation> {
        let Whose { id, choice } = whose;
        let Some(back) = self.text_bytes.checked_sub(offset) else {
            return Err(Violation::TextSkipped {
                id,
                choice,
                expected: self.text_bytes,
                found: offset,
            });
        };
        let back = usize::try_from(back).unwrap_or(usize::MAX);
        let tail = self.tail.as_bytes();
        // Claims that start before the tail are compared from its start on.
        let unseen = back.saturating_sub(tail.len());
        let claimed = text.as_bytes().get(unseen..).unwrap_or_default();
        let known_start = tail.len().saturating_sub(back);
        let known = tail.get(known_start..).unwrap_or_default();
        let agrees = claimed.iter().zip(known).all(|(left, right)| left == right);
        if agrees {
            Ok(())
        } else {
            Err(Violation::DifferentText { id, choice, offset })
        }
    }

    /// Keeps between one and two times the bound, so that cutting is rare.
    fn shorten_tail(&mut self) {
        if self.tail.len() < 2 * limits::TEXT_TAIL_BYTES_MAX {
            return;
        }
        let mut cut = self.tail.len() - limits::TEXT_TAIL_BYTES_MAX;
        while !self.tail.is_char_boundary(cut) {
            cut += 1;
        }
        self.tail.drain(..cut);
    }
}

fn end_of(offset: u32, text: &str) -> Option<u32> {
    offset.checked_add(u32::try_from(text.len()).ok()?)
}
