//! A request at work: the private state of its choices, and the events they lead to.

use relight_protocol::{
    Accepted, ChoiceFinished, ChoiceIndex, Delta, Event, Fault, Finished, Phase, RequestId,
    TokenId, Usage,
};

use crate::completion::{Completion, End};
use crate::containment::enter;
use crate::prepare::{Prepared, PreparedChoice, room_for};
use crate::sequence::{SequenceKey, SequenceStart};

/// What comes of a prepared request, before any of it has taken effect.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) serving: Serving<'a>,
    pub(super) sequences: Vec<SequenceStart>,
    pub(super) events: Vec<Event>,
    /// Tokens of a prompt that was not counted by an earlier engine.
    pub(super) new_prompt_tokens: u64,
}

impl<'a> Start<'a> {
    /// # Errors
    /// `OutOfMemory`; `Internal` if the pool can never hold `tokens_max` tokens, which
    /// preparing should have seen.
    pub(super) fn new(
        id: RequestId,
        prepared: Prepared<'a>,
        tokens_max: usize,
    ) -> Result<Self, Fault> {
        let prompt = prepared.prompt;
        let mut start = Self {
            serving: Serving::new(id, prompt.len()),
            sequences: Vec::new(),
            events: Vec::new(),
            new_prompt_tokens: 0,
        };
        if !prepared.is_resumed {
            start.new_prompt_tokens = prompt.len() as u64;
            let mut prompt_tokens = room_for(prompt.len())?;
            prompt_tokens.extend(prompt.iter().copied().map(TokenId));
            start.events.push(Event::Accepted(Accepted {
                id,
                prompt_tokens,
                prompt_text: prepared.prompt_text,
            }));
        }
        for choice in prepared.choices {
            let sequence = SequenceStart {
                key: SequenceKey {
                    request: id,
                    choice: choice.choice,
                },
                tokens: all_tokens(&prompt, &choice.committed)?,
                prompt_count: prompt.len(),
                tokens_max: prompt.len() + choice.completion.tokens_max(),
            };
            if !start.serving.add(choice, &mut start.events) {
                continue;
            }
            if sequence.tokens_max > tokens_max {
                return Err(Fault::Internal {
                    phase: Phase::Admit,
                });
            }
            start.sequences.push(sequence);
        }
        Ok(start)
    }
}

#[derive(Debug)]
pub(super) struct Serving<'a> {
    id: RequestId,
    prompt_count: u32,
    cached_count: Option<u32>,
    is_new: bool,
    /// Choices that have not ended.
    open: Vec<(ChoiceIndex, Completion<'a>)>,
    /// Tokens of the choices that have.
    finished_tokens: u32,
}

impl<'a> Serving<'a> {
    fn new(id: RequestId, prompt_count: usize) -> Self {
        Self {
            id,
            prompt_count: narrow(prompt_count),
            cached_count: None,
            is_new: true,
            open: Vec::new(),
            finished_tokens: 0,
        }
    }

    /// Takes a choice on. One that has ended already, though the other side may not know it,
    /// is only reported. Returns whether there is anything left to generate.
    fn add(&mut self, choice: PreparedChoice<'a>, events: &mut Vec<Event>) -> bool {
        let completion = choice.completion;
        if let Some(end) = completion.end()
            && !choice.is_finished
        {
            let count = completion.token_count();
            events.push(self.choice_finished(choice.choice, count, end.clone()));
        }
        if choice.is_finished || completion.end().is_some() {
            self.finished_tokens += completion.token_count();
            return false;
        }
        self.open.push((choice.choice, completion));
        true
    }

    /// Draws the next token of a choice. Pushes its delta, and the end of the choice if this
    /// was its last.
    pub(super) fn draw(
        &mut self,
        choice: ChoiceIndex,
        logits: &mut [f32],
        events: &mut Vec<Event>,
    ) -> Result<u32, Fault> {
        let missing = Fault::Internal {
            phase: Phase::Sample,
        };
        let index = self.open.iter().position(|(open, _)| *open == choice);
        let index = index.ok_or_else(|| missing.clone())?;
        let (_choice, completion) = self.open.get_mut(index).ok_or(missing)?;
        let drawn = completion.draw(logits)?;
        let piece = completion.accept(drawn.token);
        enter(Phase::Emit);
        let end = completion.end().cloned();
        events.push(Event::Delta(Delta {
            id: self.id,
            choice,
            token_index: piece.token_index,
            token: TokenId(drawn.token),
            text_offset: piece.text_offset,
            text: piece.text,
            logprobs: drawn.logprobs,
        }));
        if let Some(end) = end {
            let (_choice, completion) = self.open.remove(index);
            let count = completion.token_count();
            self.finished_tokens += count;
            events.push(self.choice_finished(choice, count, end));
        }
        Ok(drawn.token)
    }

    fn choice_finished(&self, choice: ChoiceIndex, token_count: u32, end: End) -> Event {
        Event::ChoiceFinished(ChoiceFinished {
            id: self.id,
            choice,
            reason: end.reason,
            token_count,
            text_offset: end.text_offset,
            text: end.text,
        })
    }

    /// Whether `logits` are such that a token of this choice can be drawn from them.
    pub(super) fn can_draw_from(&self, choice: ChoiceIndex, logits: &[f32]) -> bool {
        let completion = self.open.iter().find(|(open, _completion)| *open == choice);
        completion.is_some_and(|(_choice, completion)| completion.can_draw_from(logits))
    }

    /// Whether it has not come through a step yet.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn come_through(&mut self) {
        self.is_new = false;
    }

    pub(super) fn is_open(&self, choice: ChoiceIndex) -> bool {
        self.open.iter().any(|(open, _completion)| *open == choice)
    }

    /// Notes how much of the prompt was there for the first sequence to get in: the others
    /// take it from that one. Returns the count if this was the first.
    pub(super) fn note_hit(&mut self, tokens: usize) -> Option<u32> {
        if self.cached_count.is_some() {
            return None;
        }
        self.cached_count = Some(narrow(tokens));
        self.cached_count
    }

    pub(super) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn finished(&self) -> Event {
        Event::Finished(Finished {
            id: self.id,
            usage: Usage {
                prompt_tokens: self.prompt_count,
                cached_tokens: self.cached_count.unwrap_or_default(),
                completion_tokens: self.finished_tokens,
            },
        })
    }
}

fn all_tokens(prompt: &[u32], committed: &[u32]) -> Result<Vec<u32>, Fault> {
    let mut tokens = room_for(prompt.len() + committed.len())?;
    tokens.extend_from_slice(prompt);
    tokens.extend_from_slice(committed);
    Ok(tokens)
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
