//! What must hold in every run, besides what each client checks on its own stream.

use relight_protocol::{Fault, Overload, RequestId, limits};
use relight_supervisor::core::Exit;

use crate::client::Client;
use crate::engine_host::EngineHost;
use crate::world::World;

/// What an innocent request may have been through and still be blamed: the simulation's own
/// mishaps can look like the request's doing, and two deaths convict.
const STRIKES_MAX: u32 = 2;

impl World<'_> {
    /// Whether a request may be refused with this fault now.
    pub(crate) fn judge_refusal(&mut self, id: RequestId, fault: &Fault) {
        let is_fair = match fault {
            Fault::Overloaded {
                resource: Overload::QueueFull,
                ..
            } => self.bounds.queue_requests_max < self.clients.len(),
            Fault::Overloaded {
                resource: Overload::Draining,
                ..
            } => self.is_draining,
            Fault::EngineUnavailable => self.has_exhausted_budget(),
            Fault::Quarantined => self.is_suspicious(id),
            _ => false,
        };
        if !is_fair {
            self.ambient
                .breach(format_args!("{id} is refused: {fault:?}"));
        }
    }

    /// Whether a request that was let in may fail with this fault now.
    pub(crate) fn judge_failure(&mut self, id: RequestId, fault: &Fault) {
        let now_ms = self.ambient.now_ms();
        let Some(client) = self.client(id) else {
            return;
        };
        let waited_ms = now_ms.saturating_sub(client.asked_ms);
        let has_gap = client.has_gap;
        let is_fair = match fault {
            Fault::Overloaded { resource, .. } => match resource {
                Overload::QueueFull => false,
                Overload::QueueTooOld => waited_ms >= self.bounds.queue_age_ms_max,
                Overload::ReaderTooSlow => has_gap,
                Overload::Draining => self.is_draining,
            },
            Fault::EngineUnavailable => self.has_exhausted_budget(),
            Fault::EngineCrashed | Fault::EngineStalled | Fault::Quarantined => {
                self.is_suspicious(id)
            }
            Fault::NonFiniteLogits => self.ambient.faults.take_private() || self.is_suspicious(id),
            Fault::Internal { .. } => self.ambient.faults.take_private(),
            _ => false,
        };
        if !is_fair {
            self.ambient.breach(format_args!("{id} fails: {fault:?}"));
        }
    }

    /// Whether the supervisor may end the engine now.
    pub(crate) fn judge_kill(&mut self) {
        let may_be_killed = self.host.as_ref().is_some_and(EngineHost::may_be_killed);
        let is_troubled = self.ambient.is_tainted || self.ambient.is_stalled;
        let is_over = self.is_draining || self.has_exhausted_budget();
        let is_fair = may_be_killed || is_troubled || is_over;
        if !is_fair {
            self.ambient
                .breach(format_args!("a sound engine is killed"));
        }
    }

    /// More engines have died than the budget allows.
    fn has_exhausted_budget(&self) -> bool {
        self.deaths_ms.len() > limits::RESTARTS_MAX
    }

    /// Whether two engines may have gone down for a request: it is a poison, or the
    /// simulation's own mishaps have been as if it were one.
    fn is_suspicious(&mut self, id: RequestId) -> bool {
        let is_poison = self.ambient.poisons.of(id).is_some();
        let others = self.ambient.poisons.len() > 0;
        let hash = self.client(id).map(|client| client.case.fingerprint.hash);
        // Whoever sends the same is treated the same.
        let same = self.clients.iter();
        let same = same.filter(|client| Some(client.case.fingerprint.hash) == hash);
        let strikes = same.map(|client| client.strikes).max().unwrap_or_default();
        is_poison || strikes >= STRIKES_MAX || (others && strikes > 0)
    }

    /// Everything is at rest: nothing may be left over.
    pub(crate) fn check_rest(&mut self) {
        let snapshot = self.core.snapshot();
        let left = (snapshot.queue_depth, snapshot.in_flight, snapshot.suspects);
        if !self.core.ledger().is_empty() || left != (0, 0, 0) || snapshot.ledger_bytes > 0 {
            self.ambient
                .breach(format_args!("the ledger is not empty: {left:?}"));
        }
        let records = self.core.faults();
        if let Some(open) = records.iter().find(|record| !record.is_over) {
            self.ambient
                .breach(format_args!("a fault is never over: {open:?}"));
        }
        if let Some(host) = &mut self.host {
            host.check_books(&mut self.ambient);
        }
    }

    /// The run ended early, or the last thing that was waited for has come.
    pub(crate) fn check_end(&mut self) {
        if !self.ambient.breaches.is_empty() {
            return;
        }
        if !self.core.ledger().is_empty() {
            self.ambient
                .breach(format_args!("the ledger is not empty at the end"));
        }
        if self.core.snapshot().invariant_breaches_total > self.invariant_breaches {
            self.ambient.breach(format_args!(
                "the supervisor has breached its own invariants"
            ));
        }
        let Some(report) = self.stopped else {
            return self
                .ambient
                .breach(format_args!("the supervisor did not end"));
        };
        let open = self
            .clients
            .iter()
            .filter(|client| client.is_open())
            .count();
        if open > 0 {
            self.ambient
                .breach(format_args!("{open} streams have no end"));
        }
        let is_good = report.clean && report.failed == 0;
        if self.has_had_calm
            && !self.ambient.is_stalled
            && self.last_exit == Some(Exit::Code(0))
            && !is_good
        {
            self.ambient.breach(format_args!(
                "a drain without work is not clean: {report:?}"
            ));
        }
    }

    /// Liveness: long after the last trouble something still waits.
    pub(crate) fn report_unfinished(&mut self) {
        let status = self.status();
        let waiting = |client: &Client<'_>| {
            let tokens = client.tokens_received();
            (!client.has_ended()).then(|| format!("{:?} {:?} {tokens}", client.id, client.stage))
        };
        let waiting: Vec<String> = self.clients.iter().filter_map(waiting).collect();
        self.ambient
            .breach(format_args!("no end: {status:?}, waiting: {waiting:?}"));
    }
}
