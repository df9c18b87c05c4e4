//! Which waiting request the engine gets, and when.

use relight_protocol::{Command, RequestId};

use super::Core;
use super::lifecycle::EngineState;
use crate::invariant::invariant;
use crate::ledger::Entry;

impl Core {
    pub(super) fn engine_has_room(&self) -> bool {
        self.state == EngineState::Serving
            && self.waiting.is_empty()
            && self.in_flight() < self.admission.limit()
    }

    /// Requests that the engine has.
    pub(super) fn in_flight(&self) -> usize {
        self.ledger.len().saturating_sub(self.waiting.len())
    }

    /// Gives waiting requests to the engine as far as it may hold them.
    pub(super) fn dispatch(&mut self) {
        while self.state == EngineState::Serving && self.in_flight() < self.admission.limit() {
            let Some(id) = self.next_waiting() else {
                return;
            };
            self.waiting.remove(&id);
            self.give(id);
        }
    }

    /// Whose turn it is. Usually the oldest's; but while there are suspects, first all that
    /// have come through a step and are none, then one suspect at a time. The others wait, as
    /// nothing speaks for them yet: beside one of them, an innocent on trial could be found
    /// guilty of what the other did. A trial lasts long if what is tried was sent again and
    /// must come as far as it was: then the others wait for its first token only.
    fn next_waiting(&mut self) -> Option<RequestId> {
        if self.suspects.is_empty() {
            return self.waiting.first().copied();
        }
        let is_proven = |id: &&RequestId| {
            let entry = self.ledger.entry(**id);
            entry.is_some_and(|entry| entry.suspicion.is_none() && entry.tokens_committed() > 0)
        };
        if let Some(id) = self.waiting.iter().find(is_proven) {
            return Some(*id);
        }
        if let Some(tried) = self.on_trial {
            let entry = self.ledger.entry(tried);
            let has_begun =
                entry.is_some_and(|entry| entry.tokens_committed() > self.tokens_at_trial);
            let is_unsuspected = |id: &&RequestId| !self.suspects.contains(id);
            let next = self.waiting.iter().find(is_unsuspected);
            return next.copied().filter(|_id| has_begun);
        }
        let rank = |id: &&RequestId| {
            let entry = self.ledger.entry(**id);
            let suspicion = entry.and_then(|entry| entry.suspicion.as_ref());
            (!suspicion.is_some_and(|it| it.is_newcomer), **id)
        };
        self.on_trial = self.suspects.iter().min_by_key(rank).copied();
        let tried = self.on_trial.and_then(|tried| self.ledger.entry(tried));
        self.tokens_at_trial = tried.map_or(0, Entry::tokens_committed);
        self.on_trial
    }

    fn give(&mut self, id: RequestId) {
        let now_ms = self.now_ms();
        let Some(entry) = self.ledger.entry_mut(id) else {
            invariant!(false, %id, "a request waits that is not in the ledger");
            return;
        };
        if entry.attempts == 0 {
            self.queue_depth = self.queue_depth.saturating_sub(1);
        }
        entry.with_engine = true;
        entry.known_to_engine = true;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.sent_ms = now_ms;
        let resume = entry.resume();
        if let Some(resume) = &resume {
            let tokens = resume.prompt_tokens.len() as u64;
            let tokens = tokens.saturating_add(entry.tokens_committed());
            self.record.counters.tokens_replayed_total += tokens;
        }
        self.record.counters.requests_resumed_total += u64::from(entry.attempts > 1);
        let request = Box::new(entry.request().clone());
        self.oldest_sent = Some(self.oldest_sent.map_or(id, |oldest| oldest.min(id)));
        self.send(Command::Submit {
            id,
            request,
            resume,
        });
    }

    /// Gives the engine more again if it has long enough lived with less.
    pub(super) fn raise_admission(&mut self) {
        let slots = self.card.as_ref().map_or(1, |card| usize::from(card.slots));
        let now_ms = self.now_ms();
        if self.admission.pass_time(now_ms, slots) {
            self.dispatch();
        }
    }
}
