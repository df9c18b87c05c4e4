//! The supervisor's state machine. It takes a time and an input, changes its state, and
//! leaves actions to be carried out; it does no I/O and reads no clock, so a simulation
//! drives it exactly as the shell does.
//!
//! ```text
//!            Spawn        Hello         Ready
//!   Waiting ──────> Starting ──> Loading ──> Serving
//!      ▲  death, within budget      │  │         │ death: every request that the engine
//!      ├────────────────────────────┴──│─────────┤ had waits for the next one, in order
//!      │   lie or hang: killed, Dying until reaped
//!      │                               │ LoadFailed: Refused, for good
//!      └── death past the budget: Failed, then probes
//! ```
//!
//! Time is in milliseconds on a clock that never goes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use relight_protocol::{
    Command, EngineConfig, Event, FrameError, ModelCard, Request, RequestId, limits,
};

use crate::absentees::Absentees;
use crate::blame::{Fingerprint, Quarantine, Sentence};
use crate::config::Bounds;
use crate::faults::{FaultLog, FaultRecord};
use crate::handle::DrainReport;
use crate::lanes::Lanes;
use crate::ledger::Ledger;
use crate::restart_budget::RestartBudget;
use crate::stream::{RequestFailure, StreamEvent};

mod admission;
#[cfg(test)]
mod bench;
mod death;
mod dispatch;
mod drain;
mod lifecycle;
mod policy;
mod record;
mod recovery;
mod requests;
#[cfg(test)]
mod tests;
mod watchdog;

use admission::Admission;
pub use death::{Cause, EngineEnd, Exit};
use drain::Drain;
use lifecycle::EngineState;
use record::Record;
use watchdog::Watchdog;

/// Which engine, counted from 1. What an engine says after its end is ignored by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineNumber(pub u64);

/// What can happen to a supervisor.
#[derive(Clone, Debug)]
pub enum Input {
    /// Once, first.
    Start {
        /// The wall clock at the core's time zero, in milliseconds since 1970. It only stamps
        /// fault records.
        unix_ms: u64,
    },
    Submit {
        id: RequestId,
        request: Box<Request>,
        fingerprint: Fingerprint,
    },
    /// The client is gone.
    Cancel {
        id: RequestId,
    },
    /// A delivery found the reader's buffer full.
    ReaderTooSlow {
        id: RequestId,
    },
    /// A submit does not fit the pipe, together with its progress.
    SubmitTooLarge {
        id: RequestId,
    },
    EngineSpawned {
        engine: EngineNumber,
        pid: u32,
    },
    SpawnFailed {
        engine: EngineNumber,
        message: String,
    },
    EngineEvent {
        engine: EngineNumber,
        event: Event,
    },
    /// The engine's bytes are no frames.
    PipeBroken {
        engine: EngineNumber,
        error: FrameError,
    },
    /// Reaped, and everything it had written has been handed in.
    EngineExited {
        engine: EngineNumber,
        end: Box<EngineEnd>,
    },
    /// What the flight recorder says now; at every tick while an engine is up.
    Looked {
        engine: EngineNumber,
        lanes: Box<Lanes>,
    },
    /// Time has passed: at least at every deadline, and every `SUPERVISOR_TICK_MS`.
    Tick,
    /// Finish running work for at most `drain_ms`, then end.
    Shutdown {
        drain_ms: u64,
    },
    /// A fault is ordered for the engine that is up, or every engine.
    #[cfg(feature = "fault-injection")]
    Inject(relight_protocol::injection::Injection),
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Spawn {
        engine: EngineNumber,
    },
    Send {
        engine: EngineNumber,
        command: Command,
    },
    /// SIGKILL. `EngineExited` follows once it is reaped.
    Kill {
        engine: EngineNumber,
    },
    /// The request is in the ledger.
    Admit {
        id: RequestId,
    },
    /// The request is not in the ledger and will not be.
    Refuse {
        id: RequestId,
        failure: RequestFailure,
    },
    Deliver {
        id: RequestId,
        event: StreamEvent,
    },
    /// Reap what is left of the engine and end.
    Stop {
        report: DrainReport,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Core {
    engine_config: EngineConfig,
    bounds: Bounds,
    ledger: Ledger,
    /// Entries that no live engine has, oldest first.
    waiting: BTreeSet<RequestId>,
    engine: EngineNumber,
    state: EngineState,
    pid: Option<u32>,
    /// Of the engine that is up, or was up last.
    card: Option<Arc<ModelCard>>,
    /// The budget is exhausted; the next engine that gets ready ends this.
    probing: bool,
    budget: RestartBudget,
    admission: Admission,
    watchdog: Watchdog,
    quarantine: Quarantine,
    /// Open requests under suspicion.
    suspects: BTreeSet<RequestId>,
    absentees: Absentees,
    /// The suspect that an engine has.
    on_trial: Option<RequestId>,
    /// Tokens committed for it when its trial began.
    tokens_at_trial: u64,
    /// How many in `waiting` have never been given to an engine.
    queue_depth: usize,
    drain: Option<Drain>,
    /// Smallest id given to the engine that is up.
    oldest_sent: Option<RequestId>,
    /// Largest id ever submitted.
    newest_id: RequestId,
    record: Record,
    faults: FaultLog,
    ticked_ms: u64,
    actions: Vec<Action>,
    /// What every engine is told to do wrong.
    #[cfg(feature = "fault-injection")]
    injections: Vec<relight_protocol::injection::Injection>,
}

impl Core {
    /// A core that has done nothing yet. `engine_config` goes to every engine.
    #[must_use]
    pub fn new(engine_config: EngineConfig, bounds: Bounds) -> Self {
        let bounds = bounds.clamped();
        Self {
            engine_config,
            admission: Admission::new(bounds.engine_requests_max),
            bounds,
            ledger: Ledger::default(),
            waiting: BTreeSet::new(),
            engine: EngineNumber(0),
            state: EngineState::Idle,
            pid: None,
            card: None,
            probing: false,
            budget: RestartBudget::new(bounds.restarts_max),
            watchdog: Watchdog::default(),
            quarantine: Quarantine::default(),
            suspects: BTreeSet::new(),
            absentees: Absentees::default(),
            on_trial: None,
            tokens_at_trial: 0,
            queue_depth: 0,
            drain: None,
            oldest_sent: None,
            newest_id: RequestId(0),
            record: Record::default(),
            faults: FaultLog::default(),
            ticked_ms: 0,
            actions: Vec::new(),
            #[cfg(feature = "fault-injection")]
            injections: Vec::new(),
        }
    }

    /// Takes one input in. Actions pile up until they are taken.
    pub fn handle(&mut self, now_ms: u64, input: Input) {
        self.record.now_ms = now_ms.max(self.record.now_ms);
        self.faults.set_now(self.record.now_ms);
        match input {
            Input::Start { unix_ms } => self.start(unix_ms),
            Input::Submit {
                id,
                request,
                fingerprint,
            } => self.submit(id, request, fingerprint),
            Input::Cancel { id } => self.cancel(id),
            Input::ReaderTooSlow { id } => self.reader_too_slow(id),
            Input::SubmitTooLarge { id } => self.submit_too_large(id),
            Input::EngineSpawned { engine, pid } => self.engine_spawned(engine, pid),
            Input::SpawnFailed { engine, message } => self.spawn_failed(engine, message),
            Input::EngineEvent { engine, event } => self.engine_event(engine, event),
            Input::PipeBroken { engine, error } => {
                if engine == self.engine {
                    self.condemn(Cause::BadFrame(error));
                }
            }
            Input::EngineExited { engine, end } => self.engine_exited(engine, *end),
            Input::Looked { engine, lanes } => self.looked(engine, &lanes),
            Input::Tick => self.tick(),
            Input::Shutdown { drain_ms } => self.shutdown(drain_ms),
            #[cfg(feature = "fault-injection")]
            Input::Inject(injection) => self.inject(injection),
        }
    }

    /// Moves the actions that are due to the end of `target`.
    pub fn take_actions(&mut self, target: &mut Vec<Action>) {
        target.append(&mut self.actions);
    }

    /// The time at which a `Tick` is needed at the latest.
    #[must_use]
    pub fn next_deadline_ms(&self) -> u64 {
        let regular = self.ticked_ms.saturating_add(limits::SUPERVISOR_TICK_MS);
        let drain = self.drain.map_or(u64::MAX, |drain| drain.by_ms);
        regular.min(self.state.deadline_ms()).min(drain)
    }

    /// Every open request.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The newest faults, oldest first.
    pub fn faults(&mut self) -> Arc<[Arc<FaultRecord>]> {
        self.faults.publish()
    }

    pub(crate) fn sentences(&mut self) -> Arc<[Sentence]> {
        self.quarantine.publish()
    }

    /// Ends the quarantine of one fingerprint's hash, or all. How many there were.
    pub fn lift(&mut self, hash: Option<u64>) -> usize {
        self.quarantine.lift(hash)
    }

    fn now_ms(&self) -> u64 {
        self.record.now_ms
    }

    fn deliver(&mut self, id: RequestId, event: StreamEvent) {
        self.actions.push(Action::Deliver { id, event });
    }

    fn send(&mut self, command: Command) {
        let engine = self.engine;
        self.actions.push(Action::Send { engine, command });
    }
}
