//! One client: when it comes, how it reads, when it gives up, and the strict eye it keeps on
//! its stream.

use relight_protocol::{Fault, RequestId};
use relight_supervisor::StreamEvent;

use crate::case::Case;
use crate::random::Random;

/// How a client behaves; drawn from the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) arrives_ms: u64,
    /// Time between two looks at its buffer.
    pub(crate) reads_every_ms: u64,
    /// Events it takes from the buffer at each.
    pub(crate) reads_at_once: usize,
    /// It hangs up this long after it came.
    pub(crate) patience_ms: Option<u64>,
}

impl Habits {
    /// It reads everything at once and never gives up.
    pub(crate) fn patient(arrives_ms: u64) -> Self {
        Self {
            arrives_ms,
            reads_every_ms: 1,
            reads_at_once: 100,
            patience_ms: None,
        }
    }

    pub(crate) fn draw(random: &mut Random, arrivals_ms: u64) -> Self {
        Self {
            arrives_ms: random.below(arrivals_ms),
            reads_every_ms: random.one_of(1, &[5, 20, 200]),
            reads_at_once: random.one_of(1, &[4, 100]),
            patience_ms: random.one_in(5).then(|| random.below(3000)),
        }
    }
}

/// How far a client is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// It has not asked yet, or was refused and will ask again.
    Away,
    /// Its request is in the ledger.
    Open,
    Complete,
    Cancelled,
    Failed(Fault),
    /// Refused for good.
    Refused(Fault),
}

/// What has come of one choice.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    tokens: usize,
    is_finished: bool,
}

#[derive(Debug)]
pub(crate) struct Client<'a> {
    pub(crate) case: &'a Case,
    pub(crate) habits: Habits,
    pub(crate) stage: Stage,
    /// Of its last attempt.
    pub(crate) id: Option<RequestId>,
    /// When it asked first, and when last.
    pub(crate) asked_ms: u64,
    /// Engines that may have died of this request, as far as the supervisor can tell, though
    /// the simulation killed them.
    pub(crate) strikes: u32,
    /// Tokens of its prompt that were there already, as it stood at its first token.
    pub(crate) cached_tokens: Option<u32>,
    is_accepted: bool,
    choices: Vec<Received>,
    buffered: usize,
    /// Its buffer was full once: it sees nothing more but the end.
    pub(crate) has_gap: bool,
}

impl<'a> Client<'a> {
    pub(crate) fn new(case: &'a Case, habits: Habits) -> Self {
        Self {
            case,
            habits,
            stage: Stage::Away,
            id: None,
            asked_ms: 0,
            strikes: 0,
            cached_tokens: None,
            is_accepted: false,
            choices: vec![Received::default(); case.choices.len()],
            buffered: 0,
            has_gap: false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether nothing more will come of it.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.stage, Stage::Away | Stage::Open)
    }

    pub(crate) fn tokens_received(&self) -> usize {
        self.choices.iter().map(|choice| choice.tokens).sum()
    }

    /// Takes what it has read out of its buffer.
    pub(crate) fn read(&mut self) {
        self.buffered = self.buffered.saturating_sub(self.habits.reads_at_once);
    }

    /// Room for one more event that is not the last. False once, when there is none.
    pub(crate) fn buffer(&mut self, events_max: usize) -> bool {
        if self.has_gap {
            return true;
        }
        if self.buffered >= events_max {
            self.has_gap = true;
            return false;
        }
        self.buffered += 1;
        true
    }

    /// Compares an event with the undisturbed stream.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn take(&mut self, event: &StreamEvent) -> Result<(), String> {
        if !self.is_open() {
            return Err(format!("{event:?} after the end"));
        }
        let is_first = matches!(event, StreamEvent::Accepted { .. } | StreamEvent::Failed(_));
        if !self.is_accepted && !is_first {
            return Err(format!("{event:?} before it was accepted"));
        }
        match event {
            StreamEvent::Accepted {
                prompt_tokens,
                prompt_text,
            } => {
                let is_new = !std::mem::replace(&mut self.is_accepted, true);
                let case = self.case;
                ensure(is_new, "accepted twice")?;
                let is_same =
                    *prompt_tokens == case.usage.prompt_tokens && *prompt_text == case.prompt_text;
                ensure(is_same, "another prompt")
            }
            StreamEvent::Delta(delta) => {
                let index = usize::from(delta.choice.0);
                let (choice, expected) = self.choice(index)?;
                ensure(!choice.is_finished, "a token after the end of its choice")?;
                let expected = expected.deltas.get(choice.tokens);
                let expected = expected.ok_or("more tokens than there should be")?;
                choice.tokens += 1;
                let mut found = delta.clone();
                found.id = expected.id;
                ensure(found == *expected, "another token or text")
            }
            StreamEvent::ChoiceFinished(end) => {
                let (choice, expected) = self.choice(usize::from(end.choice.0))?;
                let is_new = !std::mem::replace(&mut choice.is_finished, true);
                ensure(is_new, "a choice ended twice")?;
                let mut found = end.clone();
                let expected = expected.end.as_ref().ok_or("an end that never comes")?;
                found.id = expected.id;
                ensure(found == *expected, "another end")
            }
            StreamEvent::Finished(usage) => {
                let is_whole = self.choices.iter().all(|choice| choice.is_finished);
                self.stage = Stage::Complete;
                ensure(is_whole || self.has_gap, "finished with an open choice")?;
                let expected = self.case.usage;
                let is_same = usage.prompt_tokens == expected.prompt_tokens
                    && usage.completion_tokens == expected.completion_tokens
                    && usage.cached_tokens <= usage.prompt_tokens
                    && self
                        .cached_tokens
                        .is_none_or(|first| first == usage.cached_tokens);
                ensure(is_same, "another usage")
            }
            StreamEvent::Failed(failure) => {
                self.stage = Stage::Failed(failure.fault.clone());
                Ok(())
            }
        }
    }

    fn choice(
        &mut self,
        index: usize,
    ) -> Result<(&mut Received, &'a crate::case::Expected), String> {
        let expected = self.case.choices.get(index);
        let received = self.choices.get_mut(index);
        received
            .zip(expected)
            .ok_or_else(|| format!("no choice {index}"))
    }
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}
