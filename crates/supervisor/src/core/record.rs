//! What the core remembers about itself for health and metrics.

use std::collections::VecDeque;
use std::time::Duration;

use relight_protocol::{Fault, Stats, limits};

use super::lifecycle::EngineState;
use super::{Cause, Core};
use crate::health::{Health, Snapshot, Status};
use crate::invariant;

/// Contained faults whose times are kept; more within a minute count as this many.
const RECENT_FAULTS_MAX: usize = 1024;

/// Counters, and times of what happened last.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) now_ms: u64,
    pub(super) counters: Snapshot,
    restarts: u64,
    was_ever_ready: bool,
    last_token_ms: Option<u64>,
    last_fault: Option<(String, u64)>,
    /// Faults that cost no engine.
    contained_total: u64,
    /// Times of those within `DEGRADED_MS`.
    faults_ms: VecDeque<u64>,
    /// Sums over engines that are gone.
    stats_of_the_dead: Stats,
    /// Of the engine that is up.
    stats: Stats,
    /// Contained faults of the engine that is up which are in `faults_ms` already.
    faults_noted: u64,
    /// When the loss was detected that is not recovered from yet, and when the next engine
    /// was ready.
    recovery: Option<Recovery>,
    /// Smoothed time that requests stay with an engine.
    residence_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Recovery {
    detected_ms: u64,
    ready_ms: Option<u64>,
}

impl Record {
    pub(super) fn engine_lost(&mut self, cause: &Cause, detected_ms: u64) {
        self.restarts += 1;
        *self.counters.restarts.entry(cause.label()).or_default() += 1;
        self.note_fault(cause.to_string());
        self.stats_of_the_dead = sum(self.stats_of_the_dead, self.stats);
        self.stats = Stats::default();
        self.faults_noted = 0;
        let detected_ms = self.recovery.map_or(detected_ms, |still| still.detected_ms);
        if self.was_ever_ready {
            self.recovery = Some(Recovery {
                detected_ms,
                ready_ms: None,
            });
        }
    }

    pub(super) fn engine_ready(&mut self) {
        self.was_ever_ready = true;
        if let Some(recovery) = &mut self.recovery {
            recovery.ready_ms = Some(self.now_ms);
        }
    }

    pub(super) fn token_committed(&mut self) {
        self.last_token_ms = Some(self.now_ms);
        if let Some(recovery) = self.recovery.take() {
            let taken_ms = self.now_ms.saturating_sub(recovery.detected_ms);
            self.counters
                .recoveries
                .record(Duration::from_millis(taken_ms));
        }
    }

    /// No request waits for a token: recovered when the engine was ready.
    pub(super) fn recovery_over(&mut self) {
        if let Some(recovery) = self.recovery.take() {
            let until_ms = recovery.ready_ms.unwrap_or(self.now_ms);
            let taken_ms = until_ms.saturating_sub(recovery.detected_ms);
            self.counters
                .recoveries
                .record(Duration::from_millis(taken_ms));
        }
    }

    pub(super) fn engine_stats(&mut self, stats: Stats) {
        let unseen = stats
            .contained_faults_total
            .saturating_sub(self.faults_noted);
        if unseen > 0 {
            self.last_fault = Some(("contained by the engine".into(), self.now_ms));
        }
        for _ in 0..unseen.min(RECENT_FAULTS_MAX as u64) {
            self.note_recent();
        }
        self.faults_noted = self.faults_noted.max(stats.contained_faults_total);
        if stats.pages_corrupt_total > self.stats.pages_corrupt_total {
            self.note_fault("pages of an earlier engine were damaged".into());
            self.note_recent();
        }
        self.stats = stats;
    }

    pub(super) fn contained_fault(&mut self, phase: Option<&'static str>, text: String) {
        let phase = phase.unwrap_or("unknown");
        *self.counters.contained.entry(phase).or_default() += 1;
        self.note_fault(text);
        self.note_recent();
        self.faults_noted += 1;
    }

    pub(super) fn latched(&mut self, label: &'static str, text: String) {
        *self.counters.latches.entry(label).or_default() += 1;
        self.note_fault(text);
        self.note_recent();
        self.recovery = Some(Recovery {
            detected_ms: self.recovery.map_or(self.now_ms, |still| still.detected_ms),
            ready_ms: Some(self.now_ms),
        });
    }

    fn note_recent(&mut self) {
        self.contained_total += 1;
        self.faults_ms.push_back(self.now_ms);
        if self.faults_ms.len() > RECENT_FAULTS_MAX {
            self.faults_ms.pop_front();
        }
    }

    pub(super) fn note_fault(&mut self, text: String) {
        self.last_fault = Some((text, self.now_ms));
    }

    pub(super) fn count_fault(&mut self, label: &'static str) {
        *self.counters.faults.entry(label).or_default() += 1;
    }

    pub(super) fn close(&mut self, outcome: &'static str) {
        *self.counters.requests.entry(outcome).or_default() += 1;
    }

    pub(super) fn request_served(&mut self, sent_ms: u64) {
        let taken_ms = self.now_ms.saturating_sub(sent_ms);
        self.residence_ms = (self.residence_ms.saturating_mul(7).saturating_add(taken_ms)) / 8;
    }

    pub(super) fn residence_ms(&self) -> u64 {
        self.residence_ms
    }

    fn recent_faults(&self) -> u64 {
        let is_recent =
            |then_ms: &&u64| self.now_ms.saturating_sub(**then_ms) < limits::DEGRADED_MS;
        self.faults_ms.iter().filter(is_recent).count() as u64
    }

    fn since(&self, then_ms: u64) -> Duration {
        Duration::from_millis(self.now_ms.saturating_sub(then_ms))
    }
}

impl Core {
    /// The truth, as of the last input.
    #[must_use]
    pub fn health(&self) -> Health {
        let record = &self.record;
        let loading = match &self.state {
            EngineState::Loading { progress, .. } => Some(*progress),
            _ => None,
        };
        Health {
            status: self.status(),
            card: self.card.clone(),
            loading,
            engine_pid: self.pid,
            restarts: record.restarts,
            recent_faults: record.recent_faults(),
            contained_faults: record.contained_total,
            last_generation_age: record.last_token_ms.map(|then_ms| record.since(then_ms)),
            last_fault: record
                .last_fault
                .as_ref()
                .map(|(text, then_ms)| (text.clone(), record.since(*then_ms))),
            retry_after_s: self.retry_after_s(),
        }
    }

    fn status(&self) -> Status {
        let before = |first: Status| {
            if self.record.was_ever_ready {
                Status::Recovering
            } else {
                first
            }
        };
        match &self.state {
            EngineState::Stopped => Status::Stopped,
            EngineState::Stopping { .. } => Status::Draining,
            _ if self.drain.is_some() => Status::Draining,
            EngineState::Failed { .. } | EngineState::Refused { .. } => Status::Failed,
            _ if self.probing => Status::Failed,
            EngineState::Serving if self.record.recent_faults() > 0 => Status::Degraded,
            EngineState::Serving => Status::Ready,
            EngineState::Loading { .. } => before(Status::Loading),
            EngineState::Idle
            | EngineState::Starting { .. }
            | EngineState::Dying { .. }
            | EngineState::Waiting { .. } => before(Status::Starting),
        }
    }

    /// Raw data for metrics, as of the last input.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let record = &self.record;
        Snapshot {
            stats: sum(record.stats_of_the_dead, record.stats),
            queue_depth: self.queue_depth,
            in_flight: self.in_flight(),
            in_flight_max: self.admission.limit(),
            suspects: self.suspects.len(),
            ledger_bytes: self.ledger.bytes(),
            invariant_breaches_total: invariant::breaches(),
            ..record.counters.clone()
        }
    }

    /// Why waiting for a ready engine is in vain; `None` while it is not.
    #[must_use]
    pub fn hopeless(&self) -> Option<Fault> {
        match &self.state {
            EngineState::Refused { fault } => Some(fault.clone()),
            EngineState::Stopped => Some(Fault::EngineUnavailable),
            _ if self.probing => Some(Fault::EngineUnavailable),
            _ => None,
        }
    }
}

/// Counters of both, gauges of the engine that is up.
fn sum(dead: Stats, up: Stats) -> Stats {
    let total = |count: fn(&Stats) -> u64| count(&dead).saturating_add(count(&up));
    Stats {
        steps_total: total(|stats| stats.steps_total),
        prompt_tokens_total: total(|stats| stats.prompt_tokens_total),
        cached_tokens_total: total(|stats| stats.cached_tokens_total),
        generated_tokens_total: total(|stats| stats.generated_tokens_total),
        drafted_tokens_total: total(|stats| stats.drafted_tokens_total),
        accepted_drafts_total: total(|stats| stats.accepted_drafts_total),
        preemptions_total: total(|stats| stats.preemptions_total),
        contained_faults_total: total(|stats| stats.contained_faults_total),
        audits_total: total(|stats| stats.audits_total),
        audit_failures_total: total(|stats| stats.audit_failures_total),
        pages_adopted_total: total(|stats| stats.pages_adopted_total),
        pages_corrupt_total: total(|stats| stats.pages_corrupt_total),
        costs: dead.costs.plus(&up.costs),
        ..up
    }
}
