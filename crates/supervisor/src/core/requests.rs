//! Requests in the core: admission, dispatch to the engine, what the engine says about
//! them, and their end.

use relight_protocol::{Command, Event, Fault, FinishReason, Overload, Request, RequestId, limits};

use super::lifecycle::{EngineState, out_of_turn};
use super::{Action, Core, policy};
use crate::blame::Fingerprint;
use crate::invariant::invariant;
use crate::ledger::{Entry, Violation};
use crate::stream::StreamEvent;

impl Core {
    pub(super) fn submit(&mut self, id: RequestId, request: Box<Request>, print: Fingerprint) {
        self.record.counters.requests_submitted_total += 1;
        self.newest_id = self.newest_id.max(id);
        match self.refusal(&request, print) {
            Some(fault) => self.refuse(id, fault),
            None => {
                let now_ms = self.now_ms();
                let is_open = self.ledger.open(id, request, print, now_ms);
                if invariant!(is_open, %id, "a request id came twice") {
                    self.waiting.insert(id);
                    self.actions.push(Action::Admit { id });
                    self.dispatch();
                }
            }
        }
    }

    /// Why a request cannot come in now.
    fn refusal(&mut self, request: &Request, print: Fingerprint) -> Option<Fault> {
        if self.drain.is_some() {
            return Some(self.overloaded(Overload::Draining));
        }
        if let EngineState::Refused { fault } = &self.state {
            return Some(fault.clone());
        }
        if self.probing || self.state == EngineState::Stopped {
            return Some(Fault::EngineUnavailable);
        }
        if request.choices == 0 || request.choices > limits::CHOICES_MAX {
            let message = format!("must be from 1 to {}", limits::CHOICES_MAX);
            return Some(Fault::invalid("n", message));
        }
        if self.quarantine.holds(print, self.now_ms()) {
            self.record.counters.quarantine_hits_total += 1;
            return Some(Fault::Quarantined);
        }
        let bytes = self.ledger.bytes().saturating_add(print.bytes);
        let is_full =
            !self.engine_has_room() && self.queue_depth() >= self.bounds.queue_requests_max;
        if is_full || bytes > limits::LEDGER_BYTES_MAX {
            return Some(self.overloaded(Overload::QueueFull));
        }
        None
    }

    fn refuse(&mut self, id: RequestId, fault: Fault) {
        self.record.close("refused");
        self.record.count_fault(policy::meaning_of(&fault).label);
        self.actions.push(Action::Refuse { id, fault });
    }

    fn engine_has_room(&self) -> bool {
        self.state == EngineState::Serving
            && self.waiting.is_empty()
            && self.in_flight() < self.bounds.engine_requests_max
    }

    /// Requests that the engine has.
    pub(super) fn in_flight(&self) -> usize {
        self.ledger.len().saturating_sub(self.waiting.len())
    }

    /// Requests that wait for their first engine.
    pub(super) fn queue_depth(&self) -> usize {
        let is_new = |id: &&RequestId| {
            let entry = self.ledger.entry(**id);
            entry.is_some_and(|entry| entry.engines == 0)
        };
        self.waiting.iter().filter(is_new).count()
    }

    /// Gives waiting requests to the engine, oldest first, as far as it may hold them.
    pub(super) fn dispatch(&mut self) {
        while self.state == EngineState::Serving
            && self.in_flight() < self.bounds.engine_requests_max
        {
            let Some(id) = self.waiting.pop_first() else {
                return;
            };
            let Some(entry) = self.ledger.entry_mut(id) else {
                invariant!(false, %id, "a request waits that is not in the ledger");
                continue;
            };
            entry.with_engine = true;
            entry.engines = entry.engines.saturating_add(1);
            let resume = entry.resume();
            if let Some(resume) = &resume {
                let tokens = resume.prompt_tokens.len() as u64;
                let tokens = tokens.saturating_add(entry.tokens_committed());
                self.record.counters.tokens_replayed_total += tokens;
            }
            self.record.counters.requests_resumed_total += u64::from(entry.engines > 1);
            let request = Box::new(entry.request().clone());
            self.oldest_sent = Some(self.oldest_sent.map_or(id, |oldest| oldest.min(id)));
            self.send(Command::Submit {
                id,
                request,
                resume,
            });
        }
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
        let fault = self.overloaded(Overload::ReaderTooSlow);
        self.fail(id, fault);
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
        self.fail(id, fault);
        self.after_close();
    }

    /// Refuses what has waited too long for its first engine.
    pub(super) fn expire_queued(&mut self) {
        let now_ms = self.now_ms();
        let age_max = self.bounds.queue_age_ms_max;
        let is_old = |id: &&RequestId| {
            self.ledger.entry(**id).is_some_and(|entry| {
                entry.engines == 0 && now_ms.saturating_sub(entry.opened_ms()) >= age_max
            })
        };
        let old: Vec<RequestId> = self.waiting.iter().filter(is_old).copied().collect();
        if old.is_empty() {
            return;
        }
        let fault = self.overloaded(Overload::QueueTooOld);
        for id in old {
            self.fail(id, fault.clone());
        }
        self.after_close();
    }

    /// An event of an engine that is ready.
    pub(super) fn serving_event(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Stats(stats) => {
                self.record.engine_stats(stats);
                Ok(())
            }
            Event::Accepted(accepted) => {
                let Some(entry) = self.addressed(accepted.id)? else {
                    return Ok(());
                };
                let is_new = entry.commit_accepted(&accepted)?;
                let prompt_tokens = entry.usage(0).prompt_tokens;
                let event = is_new.then_some(StreamEvent::Accepted {
                    prompt_tokens,
                    prompt_text: accepted.prompt_text,
                });
                self.deliver_if_new(accepted.id, event);
                Ok(())
            }
            Event::Started(_) => Ok(()),
            Event::Delta(delta) => {
                let context_tokens = self.context_tokens();
                let id = delta.id;
                let Some(entry) = self.addressed(id)? else {
                    return Ok(());
                };
                let event = entry.commit_delta(delta, context_tokens)?;
                if event.is_some() {
                    self.record.token_committed();
                }
                self.deliver_if_new(id, event.map(StreamEvent::Delta));
                Ok(())
            }
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
                entry.commit_finished()?;
                let usage = entry.usage(finished.usage.cached_tokens);
                let is_corrected = usage != finished.usage;
                self.record.counters.usage_corrections_total += u64::from(is_corrected);
                self.complete(finished.id, usage.cached_tokens);
                self.after_close();
                Ok(())
            }
            Event::Rejected(rejected) | Event::Failed(rejected) => {
                if self.addressed(rejected.id)?.is_some() {
                    self.failed_by_engine(rejected.id, rejected.fault);
                }
                Ok(())
            }
            other @ (Event::Hello { .. }
            | Event::Loading { .. }
            | Event::Ready(_)
            | Event::LoadFailed(_)
            | Event::Latched(_)) => Err(out_of_turn(&other)),
        }
    }

    /// The entry an event is about; `None` if it was closed while the event was under way.
    fn addressed(&mut self, id: RequestId) -> Result<Option<&mut Entry>, Violation> {
        let was_sent = self.oldest_sent.is_some_and(|oldest| oldest <= id) && id <= self.newest_id;
        match self.ledger.entry_mut(id) {
            Some(entry) if entry.with_engine => Ok(Some(entry)),
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

    fn failed_by_engine(&mut self, id: RequestId, fault: Fault) {
        let meaning = policy::meaning_of(&fault);
        if meaning.degrades {
            tracing::warn!(request = %id, %fault, "contained by the engine");
            self.record.contained_fault(fault.to_string());
        }
        if let Some(entry) = self.ledger.entry_mut(id) {
            entry.with_engine = false;
        }
        self.fail(id, fault);
        self.after_close();
    }

    /// Ends a request as complete.
    fn complete(&mut self, id: RequestId, cached_tokens: u32) {
        let Some(entry) = self.ledger.entry(id) else {
            return;
        };
        let usage = entry.usage(cached_tokens);
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
                self.complete(*id, 0);
            }
        }
    }

    /// Ends a request with a fault, and has the engine stop working on it.
    pub(super) fn fail(&mut self, id: RequestId, fault: Fault) {
        let Some(entry) = self.close(id, "failed") else {
            return;
        };
        self.record.count_fault(policy::meaning_of(&fault).label);
        if entry.with_engine {
            self.send(Command::Cancel { id });
        }
        self.deliver(id, StreamEvent::Failed(fault));
    }

    pub(super) fn fail_all(&mut self, fault: &Fault, is_meant: impl Fn(&Entry) -> bool) {
        let is_meant = |(id, entry): (RequestId, &Entry)| is_meant(entry).then_some(id);
        let ids: Vec<RequestId> = self.ledger.entries().filter_map(is_meant).collect();
        for id in ids {
            self.fail(id, fault.clone());
        }
    }

    fn close(&mut self, id: RequestId, outcome: &'static str) -> Option<Entry> {
        let entry = self.ledger.close(id)?;
        self.waiting.remove(&id);
        self.record.close(outcome);
        self.record.request_served(entry.opened_ms());
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
        }
    }

    /// An overload fault with a wait that fits the queue.
    pub(super) fn overloaded(&self, resource: Overload) -> Fault {
        Fault::Overloaded {
            resource,
            retry_after_s: self.retry_after_s(),
        }
    }

    /// When a refused client should come back: once the queue has moved on, by the pace of
    /// late (residence time over requests in flight is the time per completion).
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
            | EngineState::Stopped => {
                let depth = self.queue_depth().saturating_add(1) as u64;
                let in_flight = self.in_flight().max(1) as u64;
                self.record.residence_ms().saturating_mul(depth) / in_flight
            }
        };
        let seconds = u32::try_from(wait_ms.div_ceil(1000)).unwrap_or(u32::MAX);
        seconds.clamp(limits::RETRY_AFTER_S_MIN, limits::RETRY_AFTER_S_MAX)
    }
}

#[cfg(test)]
mod tests;
