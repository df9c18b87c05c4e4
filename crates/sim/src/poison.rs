//! Requests that are themselves at fault: whichever engine works on one goes wrong, at the
//! same place every time.

use std::collections::BTreeMap;

use relight_protocol::{Phase, RequestId};

use crate::backend::StepFault;
use crate::random::Random;

/// Deaths and latches that one poison may cost: two, and one more if somebody who had proved
/// nothing yet was at work beside it at the second, which convicts nobody.
const WORKS_MAX: u32 = 3;

/// What a poison does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    /// To every shared step in which it takes part.
    Step(StepFault),
    /// To the process, in its own private work.
    Crash(Phase),
    Hang(Phase),
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poison {
    pub(crate) effect: Effect,
    /// It works from the moment at which its first choice has so many tokens.
    pub(crate) after_tokens: u32,
}

impl Poison {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let phase = random.one_of(Phase::Sample, &[Phase::Emit, Phase::Prepare]);
        let effect = random.one_of(
            Effect::Step(StepFault::Panic),
            &[
                Effect::Step(StepFault::Error),
                Effect::Step(StepFault::AllRows),
                Effect::Step(StepFault::Crash),
                Effect::Step(StepFault::Crash),
                Effect::Step(StepFault::Hang),
                Effect::Crash(phase),
                Effect::Hang(phase),
            ],
        );
        Self {
            effect,
            after_tokens: random.one_of(0, &[0, 1, 4, 11]),
        }
    }
}

/// The poisons of one run.
#[derive(Debug, Default)]
pub(crate) struct Poisons {
    /// By what the request says.
    kinds: BTreeMap<u64, Poison>,
    /// Fingerprints of the requests that were sent.
    sent: BTreeMap<RequestId, u64>,
    works: BTreeMap<u64, u32>,
}

impl Poisons {
    /// From now on, this is what requests of that fingerprint do.
    pub(crate) fn add(&mut self, hash: u64, poison: Poison) {
        self.kinds.insert(hash, poison);
    }

    pub(crate) fn has(&self, hash: u64) -> bool {
        self.kinds.contains_key(&hash)
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn sent(&mut self, id: RequestId, hash: u64) {
        self.sent.insert(id, hash);
    }

    /// What a request does once it has `tokens`.
    pub(crate) fn effect(&self, id: RequestId, tokens: u32) -> Option<Effect> {
        let poison = self.of(id)?;
        (tokens >= poison.after_tokens).then_some(poison.effect)
    }

    pub(crate) fn of(&self, id: RequestId) -> Option<Poison> {
        self.kinds.get(self.sent.get(&id)?).copied()
    }

    /// A request has brought an engine or a generator down. False if it has done so too often,
    /// though nothing but so many `mishaps` has kept it from getting on.
    pub(crate) fn worked(&mut self, id: RequestId, mishaps: u32) -> bool {
        let hash = self.sent.get(&id).copied().unwrap_or_default();
        let works = self.works.entry(hash).or_default();
        *works += 1;
        *works <= WORKS_MAX + mishaps
    }
}
