//! Who is at fault when an engine dies or a generator latches.
//!
//! The flight recorder tells whose work was being done. All of these are suspects: that is
//! the first strike. Then innocents go on together, and suspects are tried one at a time
//! beside them, newcomers first. One that gets further than it had come is cleared; one in
//! whose trial the engine dies again is guilty. So a killer costs two deaths, and nobody
//! fails for another's fault.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use relight_protocol::recorder::Participant;
use relight_protocol::{Fault, Request, RequestId, frame, limits};

use crate::faults::FaultId;
use crate::lanes::Lanes;
use crate::ledger::Choice;

/// What makes two requests the same for the purpose of blame: the canonical request without
/// its seed, so that a retry of the same body is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint {
    pub hash: u64,
    /// Size of the request as it goes down the pipe.
    pub bytes: usize,
}

impl Fingerprint {
    /// # Errors
    /// `InvalidRequest` if the request does not fit the pipe.
    pub fn of(request: &Request) -> Result<Self, Fault> {
        let mut canonical = request.clone();
        canonical.sampling.seed = 0;
        let mut bytes = Vec::new();
        frame::encode(&canonical, &mut bytes).map_err(|_too_long| Fault::InvalidRequest {
            param: None,
            message: "the request is too large".into(),
        })?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok(Self {
            hash: hasher.finish(),
            bytes: bytes.len(),
        })
    }
}

/// A request has been there when an engine died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// Tokens committed by then for each of its choices.
    pub(crate) tokens_at_death: Vec<u32>,
    /// It had not come through a step: the first to be tried.
    pub(crate) is_newcomer: bool,
}

impl Suspicion {
    /// Whether nothing is left of it: every choice has come further, or to its end. One that
    /// stands where it stood may be the one that kills, however far the others get.
    pub(crate) fn is_refuted_by(&self, choices: &[Choice]) -> bool {
        let mut pairs = choices.iter().zip(&self.tokens_at_death);
        pairs.all(|(choice, then)| choice.finish().is_some() || choice.token_count() > *then)
    }
}

/// Who of those `aboard` may have ended the engine. Without a record that can be read, all.
pub(crate) fn suspects(lanes: Option<&Lanes>, aboard: &[RequestId]) -> Vec<Participant> {
    match lanes.filter(|lanes| !lanes.is_torn()) {
        Some(lanes) => {
            let mut participants = lanes.participants();
            participants.retain(|participant| aboard.contains(&participant.request));
            participants
        }
        None => aboard
            .iter()
            .map(|request| Participant {
                request: *request,
                is_new: false,
            })
            .collect(),
    }
}

/// One sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// Of the guilty request.
    pub(crate) hash: u64,
    pub(crate) until_ms: u64,
    pub(crate) fault_id: FaultId,
}

/// Requests that are refused for a while because they have killed engines.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// By hash of the fingerprint.
    sentences: BTreeMap<u64, Sentence>,
    /// `None` if there is something new.
    published: Option<Arc<[Sentence]>>,
}

impl Quarantine {
    /// Refuses this fingerprint from now on, for `QUARANTINE_MS`.
    pub(crate) fn add(&mut self, fingerprint: Fingerprint, fault_id: FaultId, now_ms: u64) {
        self.sentences
            .retain(|_hash, sentence| sentence.until_ms > now_ms);
        if self.sentences.len() >= limits::QUARANTINED_MAX {
            let oldest = self.sentences.values().min_by_key(|one| one.until_ms);
            if let Some(hash) = oldest.map(|sentence| sentence.hash) {
                self.sentences.remove(&hash);
            }
        }
        let hash = fingerprint.hash;
        let sentence = Sentence {
            hash,
            until_ms: now_ms.saturating_add(limits::QUARANTINE_MS),
            fault_id,
        };
        self.sentences.insert(hash, sentence);
        self.published = None;
    }

    /// The record of the verdict, if this fingerprint is refused now.
    pub(crate) fn holds(&self, fingerprint: Fingerprint, now_ms: u64) -> Option<FaultId> {
        let sentence = self.sentences.get(&fingerprint.hash)?;
        (sentence.until_ms > now_ms).then_some(sentence.fault_id)
    }

    /// Ends one sentence, or all. How many there were.
    pub(crate) fn lift(&mut self, hash: Option<u64>) -> usize {
        let before = self.sentences.len();
        self.sentences
            .retain(|of, _sentence| hash.is_some_and(|hash| hash != *of));
        self.published = None;
        before.saturating_sub(self.sentences.len())
    }

    /// All sentences, those that have ended by themselves perhaps among them.
    pub(crate) fn publish(&mut self) -> Arc<[Sentence]> {
        let sentences = &self.sentences;
        let all = || sentences.values().copied().collect();
        Arc::clone(self.published.get_or_insert_with(all))
    }
}

#[cfg(test)]
mod tests;
