//! Requests in the core: admission, dispatch to the engine, what the engine says about
//! them, and their end.

use relight_protocol::{
    Accepted, Command, Delta, Event, Fault, FinishReason, Overload, Rejected, Request, RequestId,
    Usage, limits,
};

use super::lifecycle::{EngineState, out_of_turn};
use super::{Action, Core, policy};
use crate::blame::Fingerprint;
use crate::faults::{FaultId, FaultKind, phase_word};
use crate::invariant::invariant;
use crate::ledger::{Entry, Violation};
use crate::stream::{RequestFailure, StreamEvent};

impl Core {
    pub(super) fn submit(&mut self, id: RequestId, request: Box<Request>, print: Fingerprint) {
        self.record.counters.requests_submitted_total += 1;
        self.newest_id = self.newest_id.max(id);
        match self.refusal(&request, print) {
            Some(failure) => self.refuse(id, failure),
            None => {
                let now_ms = self.now_ms();
                let is_open = self.ledger.open(id, request, print, now_ms);
                if invariant!(is_open, %id, "a request id came twice") {
                    self.recall_suspicion(id, print);
                    self.waiting.insert(id);
                    self.queue_depth = self.queue_depth.saturating_add(1);
                    self.actions.push(Action::Admit { id });
                    self.dispatch();
                }
            }
        }
    }

    /// Why a request cannot come in now. Takes the same time however many wait.
    fn refusal(&mut self, request: &Request, print: Fingerprint) -> Option<RequestFailure> {
        if self.drain.is_some() {
            return Some(self.overloaded(Overload::Draining).into());
        }
        if let EngineState::Refused { fault } = &self.state {
            return Some(fault.clone().into());
        }
        if self.probing || self.state == EngineState::Stopped {
            return Some(Fault::EngineUnavailable.into());
        }
        if request.choices == 0 || request.choices > limits::CHOICES_MAX {
            let message = format!("must be from 1 to {}", limits::CHOICES_MAX);
            return Some(Fault::invalid("n", message).into());
        }
        if let Some(fault_id) = self.quarantine.holds(print, self.now_ms()) {
            self.record.counters.quarantine_hits_total += 1;
            return Some(RequestFailure {
                fault: Fault::Quarantined,
                guilty: true,
                fault_id: Some(fault_id),
            });
        }
        let bytes = self.ledger.bytes().saturating_add(print.bytes);
        let has_room = self.engine_has_room();
        let is_full = !has_room && self.queue_depth >= self.bounds.queue_requests_max;
        let is_full = is_full || self.ledger.len() >= self.bounds.open_requests_max;
        if is_full || bytes > limits::LEDGER_BYTES_MAX {
            return Some(self.overloaded(Overload::QueueFull).into());
        }
        if !has_room && self.wait_ms() > self.bounds.queue_age_ms_max {
            return Some(self.overloaded(Overload::QueueTooOld).into());
        }
        None
    }

    fn refuse(&mut self, id: RequestId, failure: RequestFailure) {
        self.record.close("refused");
        self.record
            .count_fault(policy::meaning_of(&failure.fault).label);
        self.actions.push(Action::Refuse { id, failure });
    }

    pub(super) fn cancel(&mut self, id: RequestId) {
        if self
            .close(id, "cancelled")
            .is_some_and(|entry| entry.with_engine)
        {
            self.send(Command::Cancel { id });
        }
        self.after_close();
    }

    pub(super) fn reader_too_slow(&mut self, id: RequestId) {
        if self.ledger.entry(id).is_none() {
            return;
        }
        let fault = self.overloaded(Overload::ReaderTooSlow);
        let fault_id = self.open_private(FaultKind::ReaderTooSlow, id, &fault);
        self.fail(id, RequestFailure::recorded(fault, fault_id));
        self.after_close();
    }

    pub(super) fn submit_too_large(&mut self, id: RequestId) {
        let fault = Fault::InvalidRequest {
            param: None,
            message: "the request is too large".into(),
        };
        // The engine has never seen it: there is nothing to cancel.
        if let Some(entry) = self.ledger.entry_mut(id) {
            entry.with_engine = false;
        }
        self.fail(id, fault.into());
        self.after_close();
    }

    /// Refuses what has waited too long for its first engine.
    pub(super) fn expire_queued(&mut self) {
        let now_ms = self.now_ms();
        let age_max = self.bounds.queue_age_ms_max;
        let is_old = |id: &&RequestId| {
            self.ledger.entry(**id).is_some_and(|entry| {
                entry.attempts == 0 && now_ms.saturating_sub(entry.opened_ms()) >= age_max
            })
        };
        let old: Vec<RequestId> = self.waiting.iter().filter(is_old).copied().collect();
        if old.is_empty() {
            return;
        }
        let fault = self.overloaded(Overload::QueueTooOld);
        for id in old {
            self.fail(id, fault.clone().into());
        }
        self.after_close();
    }

    /// An event of an engine that is ready.
    pub(super) fn serving_event(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Latched(latched) => {
                self.latched(latched);
                Ok(())
            }
            Event::Stats(stats) => {
                self.record.engine_stats(stats);
                Ok(())
            }
            Event::Accepted(accepted) => self.accepted(accepted),
            Event::Started(started) => {
                if let Some(entry) = self.addressed(started.id)? {
                    entry.commit_started(started)?;
                }
                Ok(())
            }
            Event::Delta(delta) => self.delta(delta),
            Event::ChoiceFinished(finished) => {
                let id = finished.id;
                let Some(entry) = self.addressed(id)? else {
                    return Ok(());
                };
                let event = entry.commit_choice_finished(finished)?;
                self.deliver_if_new(id, event.map(StreamEvent::ChoiceFinished));
                Ok(())
            }
            Event::Finished(finished) => {
                let Some(entry) = self.addressed(finished.id)? else {
                    return Ok(());
                };
                entry.commit_finished(finished.usage.cached_tokens)?;
                let usage = entry.usage();
                // Another attempt finds other pages: no mistake.
                let is_corrected = Usage {
                    cached_tokens: usage.cached_tokens,
                    ..finished.usage
                } != usage;
                self.record.counters.usage_corrections_total += u64::from(is_corrected);
                self.complete(finished.id);
                self.after_close();
                Ok(())
            }
            Event::Rejected(rejected) | Event::Failed(rejected) => {
                if self.addressed(rejected.id)?.is_some() {
                    self.failed_by_engine(rejected);
                }
                Ok(())
            }
            other @ (Event::Hello { .. }
            | Event::Loading { .. }
            | Event::Ready(_)
            | Event::LoadFailed(_)) => Err(out_of_turn(&other)),
        }
    }

    fn accepted(&mut self, accepted: Accepted) -> Result<(), Violation> {
        let Some(entry) = self.addressed(accepted.id)? else {
            return Ok(());
        };
        let is_new = entry.commit_accepted(&accepted)?;
        let prompt_tokens = entry.usage().prompt_tokens;
        let event = is_new.then_some(StreamEvent::Accepted {
            prompt_tokens,
            prompt_text: accepted.prompt_text,
        });
        self.deliver_if_new(accepted.id, event);
        Ok(())
    }

    fn delta(&mut self, delta: Delta) -> Result<(), Violation> {
        let context_tokens = self.context_tokens();
        let id = delta.id;
        let Some(entry) = self.addressed(id)? else {
            return Ok(());
        };
        let event = entry.commit_delta(delta, context_tokens)?;
        if event.is_some() {
            self.record.token_committed();
            self.budget.progressed();
            self.faults.token_committed();
        }
        self.deliver_if_new(id, event.map(StreamEvent::Delta));
        if self.on_trial == Some(id) {
            self.try_to_acquit(id);
        }
        Ok(())
    }

    /// The entry an event is about; `None` if it was closed while the event was under way.
    fn addressed(&mut self, id: RequestId) -> Result<Option<&mut Entry>, Violation> {
        let was_sent = self.oldest_sent.is_some_and(|oldest| oldest <= id) && id <= self.newest_id;
        match self.ledger.entry_mut(id) {
            Some(entry) if entry.with_engine => Ok(Some(entry)),
            // Taken back when its generator latched.
            Some(entry) if entry.known_to_engine => {
                self.record.counters.duplicate_events_total += 1;
                Ok(None)
            }
            Some(_) => Err(Violation::WrongId { id }),
            None if was_sent => {
                self.record.counters.duplicate_events_total += 1;
                Ok(None)
            }
            None => Err(Violation::WrongId { id }),
        }
    }

    fn deliver_if_new(&mut self, id: RequestId, event: Option<StreamEvent>) {
        match event {
            Some(event) => self.deliver(id, event),
            None => self.record.counters.duplicate_events_total += 1,
        }
    }

    fn context_tokens(&self) -> u32 {
        self.card.as_ref().map_or(0, |card| card.context_tokens)
    }

    fn failed_by_engine(&mut self, rejected: Rejected) {
        let Rejected { id, fault, report } = rejected;
        if let Some(entry) = self.ledger.entry_mut(id) {
            entry.with_engine = false;
        }
        let meaning = policy::meaning_of(&fault);
        let failure = if meaning.degrades {
            tracing::warn!(request = %id, %fault, "contained by the engine");
            let phase = meaning.phase.map(phase_word);
            self.record.contained_fault(phase, fault.to_string());
            let fault_id = self.open_private(FaultKind::Contained, id, &fault);
            self.faults.amend(fault_id, |record| {
                record.phase = phase;
                record.report = report;
            });
            RequestFailure::recorded(fault, fault_id)
        } else {
            fault.into()
        };
        self.fail(id, failure);
        self.after_close();
    }

    /// Opens the record of a fault that costs one request and nobody else anything.
    fn open_private(&mut self, kind: FaultKind, id: RequestId, fault: &Fault) -> FaultId {
        let label = policy::meaning_of(fault).label;
        let fault_id = self.faults.open(kind, label, fault.to_string());
        let engine = self.engine.0;
        self.faults.amend(fault_id, |record| {
            record.engine = engine;
            record.suspects = vec![id];
            record.requests_failed = 1;
        });
        self.faults.over(fault_id);
        fault_id
    }

    /// Ends a request as complete.
    fn complete(&mut self, id: RequestId) {
        let Some(entry) = self.ledger.entry(id) else {
            return;
        };
        let usage = entry.usage();
        let was_cut = entry
            .choices()
            .iter()
            .any(|choice| choice.finish() == Some(FinishReason::Length));
        self.close(id, if was_cut { "length" } else { "stop" });
        self.deliver(id, StreamEvent::Finished(usage));
    }

    /// Ends those requests of a dead engine that lacked nothing but its last word.
    pub(super) fn complete_whole(&mut self, ids: &[RequestId]) {
        for id in ids {
            if self.ledger.entry(*id).is_some_and(Entry::is_complete) {
                self.complete(*id);
            }
        }
    }

    /// Ends a request with a fault, and has the engine stop working on it.
    pub(super) fn fail(&mut self, id: RequestId, failure: RequestFailure) {
        let Some(entry) = self.close(id, "failed") else {
            return;
        };
        self.record
            .count_fault(policy::meaning_of(&failure.fault).label);
        if entry.with_engine {
            self.send(Command::Cancel { id });
        }
        self.deliver(id, StreamEvent::Failed(failure));
    }

    /// How many there were.
    pub(super) fn fail_all(
        &mut self,
        failure: &RequestFailure,
        is_meant: impl Fn(&Entry) -> bool,
    ) -> usize {
        let is_meant = |(id, entry): (RequestId, &Entry)| is_meant(entry).then_some(id);
        let ids: Vec<RequestId> = self.ledger.entries().filter_map(is_meant).collect();
        for id in &ids {
            self.fail(*id, failure.clone());
        }
        ids.len()
    }

    fn close(&mut self, id: RequestId, outcome: &'static str) -> Option<Entry> {
        let entry = self.ledger.close(id)?;
        let was_waiting = self.waiting.remove(&id);
        if was_waiting && entry.attempts == 0 {
            self.queue_depth = self.queue_depth.saturating_sub(1);
        }
        self.suspects.remove(&id);
        let was_on_trial = self.on_trial == Some(id);
        if was_on_trial {
            self.on_trial = None;
        }
        if entry.is_complete() {
            self.absentees.settle(entry.fingerprint());
        } else {
            let now_ms = self.now_ms();
            self.absentees.leave(id, &entry, was_on_trial, now_ms);
            if entry.suspicion.is_some() {
                self.suspect_same(entry.fingerprint());
            }
        }
        self.record.close(outcome);
        if entry.with_engine {
            self.record.request_served(entry.sent_ms);
        }
        Some(entry)
    }

    /// What the room left by a closed request is good for.
    pub(super) fn after_close(&mut self) {
        self.dispatch();
        self.settle_recovery();
        self.stop_if_drained();
    }

    /// A recovery is over at the next token; without requests to resume, at once.
    pub(super) fn settle_recovery(&mut self) {
        if self.state == EngineState::Serving && self.in_flight() == 0 {
            self.record.recovery_over();
            self.faults.nothing_to_resume();
        }
    }

    /// An overload fault with a wait that fits the queue.
    pub(super) fn overloaded(&self, resource: Overload) -> Fault {
        Fault::Overloaded {
            resource,
            retry_after_s: self.retry_after_s(),
        }
    }

    /// When a refused client should come back: once the queue has moved on.
    pub(super) fn retry_after_s(&self) -> u32 {
        let wait_ms = match &self.state {
            EngineState::Waiting { until_ms } => until_ms.saturating_sub(self.now_ms()),
            EngineState::Failed { probe_ms } => probe_ms.saturating_sub(self.now_ms()),
            EngineState::Idle
            | EngineState::Starting { .. }
            | EngineState::Loading { .. }
            | EngineState::Serving
            | EngineState::Dying { .. }
            | EngineState::Refused { .. }
            | EngineState::Stopping { .. }
            | EngineState::Stopped => self.wait_ms(),
        };
        let seconds = u32::try_from(wait_ms.div_ceil(1000)).unwrap_or(u32::MAX);
        seconds.clamp(limits::RETRY_AFTER_S_MIN, limits::RETRY_AFTER_S_MAX)
    }

    /// How long one more request would wait for the engine, by the pace of late: the time
    /// that requests spend there over how many are there is the time per completion.
    fn wait_ms(&self) -> u64 {
        let depth = self.queue_depth.saturating_add(1) as u64;
        let in_flight = self.in_flight().max(1) as u64;
        self.record.residence_ms().saturating_mul(depth) / in_flight
    }
}

#[cfg(test)]
mod tests;
