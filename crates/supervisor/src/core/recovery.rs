//! What follows when an engine is gone or its generator was replaced: every request is taken
//! back, blame is assigned, and what is innocent goes on.

use relight_protocol::recorder::{Activity, Doing, Participant};
use relight_protocol::{Command, Fault, LatchCause, Latched, RequestId, limits};

use super::lifecycle::EngineState;
use super::{Cause, Core};
use crate::blame::{self, Fingerprint, Suspicion};
use crate::faults::{FaultId, FaultKind};
use crate::lanes::Lanes;
use crate::ledger::{Choice, Entry};
use crate::restart_budget::Verdict;
use crate::stream::RequestFailure;

/// The end of an engine.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) cause: Cause,
    pub(super) detected_ms: u64,
    /// Its record, if there is one already.
    pub(super) fault_id: Option<FaultId>,
    /// What the engine was at.
    pub(super) lanes: Option<Lanes>,
}

impl Loss {
    pub(super) fn now(cause: Cause, now_ms: u64) -> Self {
        Self {
            cause,
            detected_ms: now_ms,
            fault_id: None,
            lanes: None,
        }
    }

    pub(super) fn with_lanes(self, lanes: Option<Lanes>) -> Self {
        Self { lanes, ..self }
    }
}

/// What is known about who did it.
#[derive(Debug)]
struct Blame {
    /// `None` if it is not known what was being done.
    lanes: Option<Lanes>,
    /// What the guilty request is told.
    verdict: Fault,
}

impl Core {
    /// Opens the record of an engine's end.
    pub(super) fn open_death(&mut self, cause: &Cause) -> FaultId {
        let (kind, label) = (cause.kind(), cause.label());
        let fault_id = self.faults.open(kind, label, cause.to_string());
        let engine = self.engine.0;
        self.faults.amend(fault_id, |record| record.engine = engine);
        fault_id
    }

    /// The engine is gone: its requests wait for the next one, unless there is none to come.
    pub(super) fn bury(&mut self, loss: Loss) {
        let Loss {
            cause,
            detected_ms,
            fault_id,
            lanes,
        } = loss;
        tracing::warn!(engine = self.engine.0, pid = self.pid, %cause, "engine lost");
        let fault_id = fault_id.unwrap_or_else(|| self.open_death(&cause));
        self.pid = None;
        self.record.engine_lost(&cause, detected_ms);
        self.faults.contained(fault_id);
        let phase = lanes.as_ref().and_then(Lanes::phase);
        self.faults.amend(fault_id, |record| record.phase = phase);
        if cause == Cause::OutOfMemory {
            self.admission
                .out_of_memory(self.in_flight(), self.now_ms());
        }
        let blame = cause.implicates_work().then(|| Blame {
            lanes,
            verdict: cause.verdict(),
        });
        self.take_back(fault_id, blame);
        for (_id, entry) in self.ledger.entries_mut() {
            entry.known_to_engine = false;
        }
        if self.drain.is_some() && self.ledger.is_empty() {
            self.force_drain();
            self.finish_stop();
            return;
        }
        self.plan_restart(fault_id);
    }

    fn plan_restart(&mut self, fault_id: FaultId) {
        let now_ms = self.now_ms();
        let verdict = if self.probing {
            Verdict::Exhausted
        } else {
            self.budget.record(now_ms)
        };
        match verdict {
            Verdict::Restart { wait_ms } => {
                let until_ms = now_ms.saturating_add(wait_ms);
                self.state = EngineState::Waiting { until_ms };
            }
            Verdict::Exhausted => {
                tracing::error!("engines die too often; probing");
                let probe_ms = now_ms.saturating_add(limits::RESTART_BACKOFF_MS_MAX);
                self.state = EngineState::Failed { probe_ms };
                self.give_up(fault_id);
                self.stop_if_drained();
            }
        }
    }

    /// Past the restart budget nobody is kept waiting.
    fn give_up(&mut self, fault_id: FaultId) {
        self.probing = true;
        let open = self.ledger.len();
        let unavailable = RequestFailure::recorded(Fault::EngineUnavailable, fault_id);
        self.cut_short(&unavailable, |_entry| true);
        self.faults.amend(fault_id, |record| {
            record.requests_resumed = 0;
            record.requests_failed = record.requests_failed.saturating_add(open);
        });
    }

    /// The engine lives, but what it had is gone.
    pub(super) fn latched(&mut self, latched: Latched) {
        let Latched {
            cause,
            participants,
            report,
        } = latched;
        tracing::error!(engine = self.engine.0, %cause, "generator latched");
        let label = latch_label(cause);
        let fault_id = self.faults.open(FaultKind::Latch, label, cause.to_string());
        let engine = self.engine.0;
        self.faults.amend(fault_id, |record| {
            record.engine = engine;
            record.phase = Some("step");
            record.report = report;
        });
        self.faults.contained(fault_id);
        self.faults.engine_up();
        self.record.latched(label, cause.to_string());
        let blame = Blame {
            lanes: Some(of_step(participants)),
            verdict: match cause {
                LatchCause::NonFiniteLogits => Fault::NonFiniteLogits,
                LatchCause::Panicked | LatchCause::Failed | LatchCause::AuditFailed => {
                    Fault::EngineCrashed
                }
            },
        };
        let taken_back = self.take_back(fault_id, Some(blame));
        if self.state != EngineState::Serving {
            return;
        }
        let now_ms = self.now_ms();
        if self.budget.record(now_ms) == Verdict::Exhausted {
            tracing::error!("generators latch too often");
            self.give_up(fault_id);
            self.condemn(Cause::LatchedTooOften);
            return;
        }
        self.after_close();
        // What was on its way to the engine when it latched is there now; what is held back
        // must not be computed meanwhile.
        for id in taken_back {
            let entry = self.ledger.entry(id);
            if entry.is_some_and(|entry| !entry.with_engine) {
                self.send(Command::Cancel { id });
            }
        }
    }

    /// Takes every request back, ends those that lacked nothing but the last word, and finds
    /// out whether one is guilty.
    fn take_back(&mut self, fault_id: FaultId, blame: Option<Blame>) -> Vec<RequestId> {
        let mut aboard: Vec<RequestId> = Vec::new();
        for (id, entry) in self.ledger.entries_mut() {
            if entry.with_engine {
                entry.with_engine = false;
                aboard.push(id);
            }
        }
        let tried = self.on_trial.take();
        self.waiting.extend(&aboard);
        self.complete_whole(&aboard);
        aboard.retain(|id| self.ledger.entry(*id).is_some());
        let had = aboard.len();
        if let Some(blame) = blame {
            self.assign(blame, tried, fault_id);
            aboard.retain(|id| self.ledger.entry(*id).is_some());
        }
        self.absentees.forget_engine();
        let resumed = aboard.len();
        self.faults.amend(fault_id, |record| {
            record.requests_resumed = resumed;
            record.requests_failed = had.saturating_sub(resumed);
        });
        aboard
    }

    /// Finds out who did it.
    fn assign(&mut self, blame: Blame, tried: Option<RequestId>, fault_id: FaultId) {
        let Blame { lanes, verdict } = blame;
        // Also those that were taken back or closed a moment ago: the engine may not have known.
        let known = |(id, entry): (RequestId, &Entry)| entry.known_to_engine.then_some(id);
        let known = self.ledger.entries().filter_map(known);
        let known: Vec<RequestId> = known.chain(self.absentees.ids()).collect();
        let mut suspects = blame::suspects(lanes.as_ref(), &known);
        let mut tried: Vec<RequestId> = self.absentees.on_trial().chain(tried).collect();
        tried.retain(|tried| suspects.iter().any(|one| one.request == *tried));
        // If two that were tried one after the other were both at work, or one that has proved
        // nothing beside the one on trial, it is not known which.
        let guilty = match tried.as_slice() {
            [guilty] if self.are_proven(&suspects, *guilty) => Some(*guilty),
            _ => None,
        };
        if let Some(guilty) = guilty {
            suspects.retain(|one| one.request == guilty);
        }
        let ids = suspects.iter().map(|one| one.request).collect();
        self.faults.amend(fault_id, |record| record.suspects = ids);
        match guilty {
            Some(guilty) => self.convict(guilty, fault_id, verdict),
            None => self.suspect(&suspects),
        }
    }

    /// Whether all but the one on trial have come through a step before.
    fn are_proven(&self, participants: &[Participant], tried: RequestId) -> bool {
        let mut others = participants.iter().filter(|one| one.request != tried);
        others.all(|one| {
            let entry = self.ledger.entry(one.request);
            entry.is_none_or(|entry| entry.tokens_committed() > 0)
        })
    }

    /// The first strike.
    fn suspect(&mut self, suspects: &[Participant]) {
        let now_ms = self.now_ms();
        for one in suspects {
            let Some(entry) = self.ledger.entry_mut(one.request) else {
                if let Some(print) = self.absentees.suspect(one.request, now_ms) {
                    self.suspect_same(print);
                }
                continue;
            };
            let tokens = entry.tokens_committed();
            tracing::warn!(request = %one.request, tokens, "request under suspicion");
            let choices = entry.choices().iter().map(Choice::token_count);
            entry.suspicion = Some(Suspicion {
                tokens_at_death: choices.collect(),
                is_newcomer: one.is_new || tokens == 0,
            });
            self.suspects.insert(one.request);
        }
    }

    /// What was sent again already is as suspect as what is gone.
    pub(super) fn suspect_same(&mut self, print: Fingerprint) {
        let is_same = |(id, entry): (RequestId, &Entry)| {
            let is_same = entry.fingerprint() == print && entry.suspicion.is_none();
            is_same.then_some(id)
        };
        let same: Vec<RequestId> = self.ledger.entries().filter_map(is_same).collect();
        for id in same {
            self.recall_suspicion(id, print);
        }
    }

    /// A request that was sent before, and was there when an engine died, is as suspect now.
    pub(super) fn recall_suspicion(&mut self, id: RequestId, print: Fingerprint) {
        let suspicion = self.absentees.recall(print, self.now_ms());
        if let (Some(suspicion), Some(entry)) = (suspicion, self.ledger.entry_mut(id))
            && !suspicion.is_refuted_by(entry.choices())
        {
            tracing::warn!(request = %id, "request under suspicion, as it was sent before");
            entry.suspicion = Some(suspicion);
            self.suspects.insert(id);
        }
    }

    /// The second strike.
    fn convict(&mut self, guilty: RequestId, death: FaultId, verdict: Fault) {
        let entry = self.ledger.entry(guilty).map(Entry::fingerprint);
        let Some(print) = entry.or_else(|| self.absentees.fingerprint(guilty)) else {
            return;
        };
        tracing::error!(request = %guilty, fault = %death, "request quarantined");
        let description = format!("{guilty} was being worked on at {death} and at a fault before");
        let label = match verdict {
            Fault::EngineStalled => "engine_stalled",
            Fault::NonFiniteLogits => "non_finite_logits",
            _ => "engine_crashed",
        };
        let kind = FaultKind::Quarantine;
        let fault_id = self.faults.open(kind, label, description);
        let engine = self.engine.0;
        self.faults.amend(fault_id, |record| {
            record.engine = engine;
            record.suspects = vec![guilty];
            record.requests_failed = 1;
        });
        self.faults.over(fault_id);
        self.record.counters.quarantines_total += 1;
        let now_ms = self.now_ms();
        self.quarantine.add(print, fault_id, now_ms);
        let failure = RequestFailure {
            fault: verdict,
            guilty: true,
            fault_id: Some(fault_id),
        };
        self.fail(guilty, failure);
        // Whoever else sent it.
        let quarantined = RequestFailure {
            fault: Fault::Quarantined,
            guilty: true,
            fault_id: Some(fault_id),
        };
        let is_same = |entry: &Entry| entry.fingerprint() == print;
        self.fail_all(&quarantined, is_same);
        self.absentees.settle(print);
    }

    /// Clears the one on trial if it has come further than it was when it fell under
    /// suspicion.
    pub(super) fn try_to_acquit(&mut self, id: RequestId) {
        let Some(entry) = self.ledger.entry_mut(id) else {
            return;
        };
        let got_further = entry
            .suspicion
            .as_ref()
            .is_some_and(|suspicion| suspicion.is_refuted_by(entry.choices()));
        if got_further {
            tracing::info!(request = %id, "request cleared");
            entry.suspicion = None;
            let print = entry.fingerprint();
            self.absentees.settle(print);
            self.suspects.remove(&id);
            self.on_trial = None;
        }
        // Those that waited for the end of the trial, or for its first token.
        self.dispatch();
    }
}

/// Those who took part, as the recorder would have told it.
fn of_step(participants: Vec<Participant>) -> Lanes {
    Lanes {
        generator: Activity {
            doing: Doing::Shared { participants },
            ..Activity::default()
        },
        ..Lanes::default()
    }
}

fn latch_label(cause: LatchCause) -> &'static str {
    match cause {
        LatchCause::Panicked => "panic",
        LatchCause::Failed => "failed",
        LatchCause::NonFiniteLogits => "non_finite_logits",
        LatchCause::AuditFailed => "audit",
    }
}

#[cfg(test)]
mod tests;
