//! Suspects that are not there to be tried: their clients hung up, before a death that they
//! may have caused or after it. What they had sent is remembered, so that sending it again is
//! no way out: a client that gives up on a hanging engine and tries again would otherwise cost
//! a death each time.

use std::collections::BTreeMap;

use relight_protocol::{RequestId, limits};

use crate::blame::{Fingerprint, Suspicion};
use crate::ledger::{Choice, Entry};

/// A request that was closed while an engine may have been at it.
#[derive(Debug)]
struct Leaver {
    print: Fingerprint,
    /// Committed by then, for each choice.
    tokens: Vec<u32>,
    was_on_trial: bool,
}

#[derive(Debug)]
struct Mark {
    suspicion: Suspicion,
    until_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Absentees {
    /// Of the engine that is up.
    leavers: BTreeMap<RequestId, Leaver>,
    /// By hash of the fingerprint.
    marks: BTreeMap<u64, Mark>,
}

impl Absentees {
    /// A request was closed, though it was not complete.
    pub(crate) fn leave(&mut self, id: RequestId, entry: &Entry, was_on_trial: bool, now_ms: u64) {
        let print = entry.fingerprint();
        if entry.with_engine {
            if self.leavers.len() >= limits::ENGINE_REQUESTS_MAX {
                self.leavers.pop_first();
            }
            let leaver = Leaver {
                print,
                tokens: entry.choices().iter().map(Choice::token_count).collect(),
                was_on_trial,
            };
            self.leavers.insert(id, leaver);
        }
        if let Some(suspicion) = &entry.suspicion {
            self.mark(print, suspicion.clone(), now_ms);
        }
    }

    /// Those that an engine may still be at.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.leavers.keys().copied()
    }

    pub(crate) fn on_trial(&self) -> impl Iterator<Item = RequestId> {
        let tried = self.leavers.iter();
        let tried = tried.filter(|(_id, leaver)| leaver.was_on_trial);
        tried.map(|(id, _leaver)| *id)
    }

    pub(crate) fn fingerprint(&self, id: RequestId) -> Option<Fingerprint> {
        self.leavers.get(&id).map(|leaver| leaver.print)
    }

    /// The first strike of one that has left, and what it had sent.
    pub(crate) fn suspect(&mut self, id: RequestId, now_ms: u64) -> Option<Fingerprint> {
        let leaver = self.leavers.get(&id)?;
        let print = leaver.print;
        let suspicion = Suspicion {
            tokens_at_death: leaver.tokens.clone(),
            is_newcomer: true,
        };
        self.mark(print, suspicion, now_ms);
        Some(print)
    }

    /// The engine, or its generator, is gone with all that it was at.
    pub(crate) fn forget_engine(&mut self) {
        self.leavers.clear();
    }

    /// What a request that comes now is suspected of.
    pub(crate) fn recall(&self, print: Fingerprint, now_ms: u64) -> Option<Suspicion> {
        let mark = self.marks.get(&print.hash)?;
        (mark.until_ms > now_ms).then(|| mark.suspicion.clone())
    }

    /// Nothing is left of a suspicion, or it was proven.
    pub(crate) fn settle(&mut self, print: Fingerprint) {
        self.marks.remove(&print.hash);
    }

    fn mark(&mut self, print: Fingerprint, suspicion: Suspicion, now_ms: u64) {
        self.marks.retain(|_hash, mark| mark.until_ms > now_ms);
        if self.marks.len() >= limits::QUARANTINED_MAX {
            let oldest = self.marks.iter().min_by_key(|(_hash, mark)| mark.until_ms);
            if let Some(hash) = oldest.map(|(hash, _mark)| *hash) {
                self.marks.remove(&hash);
            }
        }
        let until_ms = now_ms.saturating_add(limits::QUARANTINE_MS);
        let mark = Mark {
            suspicion,
            until_ms,
        };
        self.marks.insert(print.hash, mark);
    }
}
