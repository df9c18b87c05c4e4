//! The engine's life as the core sees it: spawn, load, serve, die, restart, probe, stop.

use std::sync::Arc;

use relight_protocol::{
    Command, Event, Fault, ModelCard, Overload, PROTOCOL_VERSION, RequestId, limits,
};

use super::{Action, Cause, Core, Drain, EngineNumber, Exit};
use crate::blame;
use crate::handle::DrainReport;
use crate::health::LoadProgress;
use crate::invariant::invariant;
use crate::ledger::{Entry, Violation};
use crate::restart_budget::Verdict;

/// Where the engine is in its life.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EngineState {
    /// Before `Start`.
    Idle,
    /// Spawned, no hello yet.
    Starting {
        by_ms: u64,
    },
    Loading {
        by_ms: u64,
        progress: LoadProgress,
    },
    /// Ready.
    Serving,
    /// Killed, not reaped yet. What it still says is not believed.
    Dying {
        cause: Cause,
        since_ms: u64,
        by_ms: u64,
    },
    /// Dead; the next one starts at this time.
    Waiting {
        until_ms: u64,
    },
    /// Died too often; the next one is a probe.
    Failed {
        probe_ms: u64,
    },
    /// The model cannot be loaded. Final: it would fail again.
    Refused {
        fault: Fault,
    },
    /// Asked to exit.
    Stopping {
        by_ms: u64,
    },
    Stopped,
}

impl EngineState {
    pub(super) fn deadline_ms(&self) -> u64 {
        match self {
            Self::Starting { by_ms }
            | Self::Loading { by_ms, .. }
            | Self::Dying { by_ms, .. }
            | Self::Stopping { by_ms } => *by_ms,
            Self::Waiting { until_ms } => *until_ms,
            Self::Failed { probe_ms } => *probe_ms,
            Self::Idle | Self::Serving | Self::Refused { .. } | Self::Stopped => u64::MAX,
        }
    }
}

impl Core {
    pub(super) fn start(&mut self) {
        if invariant!(self.state == EngineState::Idle, "started twice") {
            self.spawn();
        }
    }

    fn spawn(&mut self) {
        self.engine = EngineNumber(self.engine.0.saturating_add(1));
        self.oldest_sent = None;
        let by_ms = self.now_ms().saturating_add(self.bounds.hello_ms_max);
        self.state = EngineState::Starting { by_ms };
        let engine = self.engine;
        self.actions.push(Action::Spawn { engine });
    }

    pub(super) fn engine_spawned(&mut self, engine: EngineNumber, pid: u32) {
        if engine == self.engine {
            tracing::debug!(engine = engine.0, pid, "engine spawned");
            self.pid = Some(pid);
        }
    }

    pub(super) fn spawn_failed(&mut self, engine: EngineNumber, message: String) {
        if engine == self.engine {
            let now_ms = self.now_ms();
            self.bury(&Cause::NotStarted { message }, now_ms);
        }
    }

    pub(super) fn engine_event(&mut self, engine: EngineNumber, event: Event) {
        if engine != self.engine {
            return;
        }
        let outcome = match self.state {
            EngineState::Starting { .. } => self.starting_event(&event),
            EngineState::Loading { .. } => self.loading_event(event),
            EngineState::Serving | EngineState::Stopping { .. } => self.serving_event(event),
            EngineState::Idle
            | EngineState::Dying { .. }
            | EngineState::Waiting { .. }
            | EngineState::Failed { .. }
            | EngineState::Refused { .. }
            | EngineState::Stopped => Ok(()),
        };
        if let Err(violation) = outcome {
            self.record.counters.protocol_violations_total += 1;
            self.condemn(Cause::Violation(violation));
        }
    }

    fn starting_event(&mut self, event: &Event) -> Result<(), Violation> {
        let Event::Hello {
            protocol_version, ..
        } = *event
        else {
            return Err(out_of_turn(event));
        };
        if protocol_version != PROTOCOL_VERSION {
            return Err(Violation::WrongVersion {
                expected: PROTOCOL_VERSION,
                found: protocol_version,
            });
        }
        self.state = EngineState::Loading {
            by_ms: self.now_ms().saturating_add(limits::LOAD_SILENCE_MS_MAX),
            progress: LoadProgress::default(),
        };
        #[cfg(feature = "fault-injection")]
        for injection in self.injections.clone() {
            self.send(Command::Inject(injection));
        }
        let config = self.engine_config.clone();
        self.send(Command::Load(config));
        Ok(())
    }

    #[cfg(feature = "fault-injection")]
    pub(super) fn inject(&mut self, injection: relight_protocol::injection::Injection) {
        if injection.every_engine {
            self.injections.push(injection.clone());
        }
        if matches!(
            self.state,
            EngineState::Loading { .. } | EngineState::Serving
        ) {
            self.send(Command::Inject(injection));
        }
    }

    fn loading_event(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Loading {
                done_bytes,
                total_bytes,
            } => {
                self.state = EngineState::Loading {
                    by_ms: self.now_ms().saturating_add(limits::LOAD_SILENCE_MS_MAX),
                    progress: LoadProgress {
                        done_bytes,
                        total_bytes,
                    },
                };
                Ok(())
            }
            Event::Ready(card) => {
                self.ready(*card);
                Ok(())
            }
            // Memory may be there the next time; a file that cannot be served stays so.
            Event::LoadFailed(Fault::OutOfMemory) => {
                self.condemn(Cause::LoadOutOfMemory);
                Ok(())
            }
            Event::LoadFailed(fault) => {
                self.refuse_model(&fault);
                Ok(())
            }
            other => Err(out_of_turn(&other)),
        }
    }

    fn ready(&mut self, card: ModelCard) {
        tracing::info!(
            engine = self.engine.0,
            pid = self.pid,
            load_ms = card.load_ms,
            "engine ready"
        );
        let former = self.card.replace(Arc::new(card));
        self.state = EngineState::Serving;
        if self.probing {
            self.probing = false;
            self.budget.forgive();
        }
        self.record.engine_ready();
        let fingerprint = self.card.as_ref().map(|card| card.fingerprint);
        if former.is_some_and(|card| Some(card.fingerprint) != fingerprint) {
            // What was sent came from another model: nothing can continue it truthfully.
            tracing::error!("the model has changed under running requests");
            self.cut_short(&Fault::EngineUnavailable, Entry::is_accepted);
        }
        self.after_close();
    }

    fn refuse_model(&mut self, fault: &Fault) {
        tracing::error!(%fault, "the model is refused");
        self.record.note_fault(fault.to_string());
        let engine = self.engine;
        self.actions.push(Action::Kill { engine });
        self.state = EngineState::Refused {
            fault: fault.clone(),
        };
        self.cut_short(fault, |_entry| true);
        self.stop_if_drained();
    }

    /// Kills an engine that cannot be believed or waited for any longer.
    pub(super) fn condemn(&mut self, cause: Cause) {
        let is_up = matches!(
            self.state,
            EngineState::Starting { .. } | EngineState::Loading { .. } | EngineState::Serving
        );
        let engine = self.engine;
        if is_up {
            tracing::warn!(engine = engine.0, %cause, "engine condemned");
            let since_ms = self.now_ms();
            let by_ms = since_ms.saturating_add(limits::ENGINE_EXIT_MS_MAX);
            self.state = EngineState::Dying {
                cause,
                since_ms,
                by_ms,
            };
            self.actions.push(Action::Kill { engine });
        } else if matches!(self.state, EngineState::Stopping { .. }) {
            self.force_drain();
            self.actions.push(Action::Kill { engine });
        }
    }

    pub(super) fn engine_exited(&mut self, engine: EngineNumber, exit: Exit) {
        if engine != self.engine {
            return;
        }
        let now_ms = self.now_ms();
        match &self.state {
            EngineState::Starting { .. } | EngineState::Loading { .. } | EngineState::Serving => {
                self.bury(&Cause::Exited(exit), now_ms);
            }
            EngineState::Dying {
                cause, since_ms, ..
            } => {
                let (cause, since_ms) = (cause.clone(), *since_ms);
                self.bury(&cause, since_ms);
            }
            EngineState::Stopping { .. } => {
                if exit != Exit::Code(0) {
                    self.force_drain();
                }
                self.finish_stop();
            }
            EngineState::Refused { .. } => self.pid = None,
            EngineState::Idle
            | EngineState::Waiting { .. }
            | EngineState::Failed { .. }
            | EngineState::Stopped => {}
        }
    }

    /// The engine is gone: its requests wait for the next one, unless there is none to come.
    fn bury(&mut self, cause: &Cause, detected_ms: u64) {
        tracing::warn!(engine = self.engine.0, pid = self.pid, %cause, "engine lost");
        self.pid = None;
        self.record.engine_lost(cause, detected_ms);
        self.reclaim_requests(cause);
        if self.drain.is_some() && self.ledger.is_empty() {
            self.force_drain();
            self.finish_stop();
            return;
        }
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
                self.probing = true;
                let probe_ms = now_ms.saturating_add(limits::RESTART_BACKOFF_MS_MAX);
                self.state = EngineState::Failed { probe_ms };
                self.cut_short(&Fault::EngineUnavailable, |_entry| true);
                self.stop_if_drained();
            }
        }
    }

    /// Fails requests through no fault of theirs: a drain that does so is not clean.
    fn cut_short(&mut self, fault: &Fault, is_meant: impl Fn(&Entry) -> bool) {
        let open = self.ledger.len();
        self.fail_all(fault, is_meant);
        let cut = open.saturating_sub(self.ledger.len());
        if let Some(drain) = &mut self.drain {
            drain.failed = drain.failed.saturating_add(cut);
        }
    }

    /// Takes every request back from a dead engine, and finds out whether one is guilty.
    fn reclaim_requests(&mut self, cause: &Cause) {
        let mut aboard: Vec<RequestId> = Vec::new();
        for (id, entry) in self.ledger.entries_mut() {
            if entry.with_engine {
                entry.with_engine = false;
                aboard.push(id);
            }
        }
        self.waiting.extend(&aboard);
        self.complete_whole(&aboard);
        aboard.retain(|id| self.ledger.entry(*id).is_some());
        let [only] = aboard.as_slice() else { return };
        let Some(entry) = self.ledger.entry_mut(*only) else {
            return;
        };
        if cause.implicates_work() && blame::convict(entry) {
            let fingerprint = entry.fingerprint();
            tracing::error!(request = %only, "request quarantined");
            self.record.counters.quarantines_total += 1;
            let now_ms = self.now_ms();
            self.quarantine.add(fingerprint, now_ms);
            self.fail(*only, Fault::EngineCrashed);
        }
    }

    pub(super) fn tick(&mut self) {
        self.expire_queued();
        let now_ms = self.now_ms();
        if self.drain.is_some_and(|drain| now_ms >= drain.by_ms) {
            self.end_drain();
        }
        if now_ms < self.state.deadline_ms() {
            return;
        }
        match &self.state {
            EngineState::Starting { .. } => self.condemn(Cause::NoHello),
            EngineState::Loading { .. } => self.condemn(Cause::LoadStalled),
            EngineState::Dying { .. } => self.engine_exited(self.engine, Exit::Unreaped),
            EngineState::Waiting { .. } | EngineState::Failed { .. } => self.spawn(),
            EngineState::Stopping { .. } => {
                self.force_drain();
                self.finish_stop();
            }
            EngineState::Idle
            | EngineState::Serving
            | EngineState::Refused { .. }
            | EngineState::Stopped => {}
        }
    }

    pub(super) fn shutdown(&mut self, drain_ms: u64) {
        if self.drain.is_some() {
            return;
        }
        self.drain = Some(Drain {
            by_ms: self.now_ms().saturating_add(drain_ms),
            failed: 0,
            forced: false,
        });
        let draining = self.overloaded(Overload::Draining);
        self.fail_all(&draining, |entry| entry.engines == 0);
        self.stop_if_drained();
    }

    /// The time for running work is over.
    fn end_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.by_ms = u64::MAX;
        }
        let draining = self.overloaded(Overload::Draining);
        self.cut_short(&draining, |_entry| true);
        self.stop_if_drained();
    }

    /// Ends the engine once a drain has nothing left to wait for.
    pub(super) fn stop_if_drained(&mut self) {
        if self.drain.is_none() || !self.ledger.is_empty() {
            return;
        }
        let engine = self.engine;
        match self.state {
            EngineState::Serving => self.send(Command::Shutdown),
            EngineState::Starting { .. } | EngineState::Loading { .. } => {
                // Nothing is lost with an engine that has done no work: no need to wait
                // until it looks at its pipe. Its end by our own signal is a clean one.
                self.actions.push(Action::Kill { engine });
                self.finish_stop();
                return;
            }
            EngineState::Idle
            | EngineState::Waiting { .. }
            | EngineState::Failed { .. }
            | EngineState::Refused { .. } => {
                self.finish_stop();
                return;
            }
            // Its end, awaited already, ends the drain.
            EngineState::Dying { .. } | EngineState::Stopping { .. } | EngineState::Stopped => {
                return;
            }
        }
        let by_ms = self.now_ms().saturating_add(limits::ENGINE_EXIT_MS_MAX);
        self.state = EngineState::Stopping { by_ms };
    }

    fn force_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.forced = true;
        }
    }

    fn finish_stop(&mut self) {
        let report = self.drain.map_or(
            DrainReport {
                failed: 0,
                clean: false,
            },
            |drain| DrainReport {
                failed: drain.failed,
                clean: drain.failed == 0 && !drain.forced,
            },
        );
        self.state = EngineState::Stopped;
        self.actions.push(Action::Stop { report });
    }
}

/// The violation of an event that the engine's state does not allow.
pub(super) fn out_of_turn(event: &Event) -> Violation {
    let event = match event {
        Event::Hello { .. } => "hello",
        Event::Loading { .. } => "loading",
        Event::Ready(_) => "ready",
        Event::LoadFailed(_) => "load failed",
        Event::Accepted(_) => "accepted",
        Event::Rejected(_) => "rejected",
        Event::Started(_) => "started",
        Event::Delta(_) => "delta",
        Event::ChoiceFinished(_) => "choice finished",
        Event::Finished(_) => "finished",
        Event::Failed(_) => "failed",
        Event::Latched(_) => "latched",
        Event::Stats(_) => "stats",
    };
    Violation::OutOfTurn { event }
}

#[cfg(test)]
mod tests;
