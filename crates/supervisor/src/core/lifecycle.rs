//! The engine's life as the core sees it: spawn, load, serve, die, restart, probe, stop.

use std::sync::Arc;

use relight_protocol::{Command, Event, Fault, ModelCard, PROTOCOL_VERSION, limits};

use super::recovery::Loss;
use super::watchdog::Watchdog;
use super::{Action, Cause, Core, EngineEnd, EngineNumber, Exit};
use crate::faults::FaultId;
use crate::health::LoadProgress;
use crate::invariant::invariant;
use crate::ledger::{Entry, Violation};

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
        fault_id: FaultId,
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
    pub(super) fn start(&mut self, unix_ms: u64) {
        if invariant!(self.state == EngineState::Idle, "started twice") {
            self.faults.set_epoch(unix_ms);
            self.spawn();
        }
    }

    fn spawn(&mut self) {
        self.engine = EngineNumber(self.engine.0.saturating_add(1));
        self.oldest_sent = None;
        self.watchdog = Watchdog::default();
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
            self.bury(Loss::now(Cause::NotStarted { message }, self.now_ms()));
        }
    }

    pub(super) fn engine_event(&mut self, engine: EngineNumber, event: Event) {
        if engine != self.engine {
            return;
        }
        self.watchdog.heard();
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
        self.faults.engine_up();
        let fingerprint = self.card.as_ref().map(|card| card.fingerprint);
        if former.is_some_and(|card| Some(card.fingerprint) != fingerprint) {
            // What was sent came from another model: nothing can continue it truthfully.
            tracing::error!("the model has changed under running requests");
            self.cut_short(&Fault::EngineUnavailable.into(), Entry::is_accepted);
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
        self.cut_short(&fault.clone().into(), |_entry| true);
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
            let fault_id = self.open_death(&cause);
            let since_ms = self.now_ms();
            let by_ms = since_ms.saturating_add(limits::ENGINE_EXIT_MS_MAX);
            self.state = EngineState::Dying {
                cause,
                fault_id,
                since_ms,
                by_ms,
            };
            self.actions.push(Action::Kill { engine });
        } else if matches!(self.state, EngineState::Stopping { .. }) {
            self.force_drain();
            self.actions.push(Action::Kill { engine });
        }
    }

    pub(super) fn engine_exited(&mut self, engine: EngineNumber, end: EngineEnd) {
        if engine != self.engine {
            return;
        }
        match &self.state {
            EngineState::Starting { .. } | EngineState::Loading { .. } | EngineState::Serving => {
                let loss = Loss::now(end.cause(), self.now_ms());
                self.bury(loss.with_lanes(end.lanes));
            }
            EngineState::Dying {
                cause,
                fault_id,
                since_ms,
                ..
            } => {
                let loss = Loss {
                    fault_id: Some(*fault_id),
                    ..Loss::now(cause.clone(), *since_ms)
                };
                self.bury(loss.with_lanes(end.lanes));
            }
            EngineState::Stopping { .. } => {
                if end.exit != Exit::Code(0) {
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

    pub(super) fn tick(&mut self) {
        let now_ms = self.now_ms();
        self.ticked_ms = now_ms;
        self.expire_queued();
        self.raise_admission();
        if self.drain.is_some_and(|drain| now_ms >= drain.by_ms) {
            self.end_drain();
        }
        if now_ms < self.state.deadline_ms() {
            return;
        }
        match &self.state {
            EngineState::Starting { .. } => self.condemn(Cause::NoHello),
            EngineState::Loading { .. } => self.condemn(Cause::LoadStalled),
            EngineState::Dying { .. } => self.engine_exited(self.engine, Exit::Unreaped.into()),
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
