//! Why an engine is gone.

use relight_protocol::{Fault, FrameError};

use crate::faults::FaultKind;
use crate::lanes::Lanes;
use crate::ledger::Violation;

/// How the process ended, as the operating system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exit {
    #[error("exit code {0}")]
    Code(i32),
    #[error("signal {0}")]
    Signal(i32),
    /// It did not go away in time after a kill; no longer waited for.
    #[error("no exit within the time limit")]
    Unreaped,
}

/// All that is known of an engine's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineEnd {
    pub exit: Exit,
    /// What the flight recorder said afterwards; `None` if it could not be read.
    pub lanes: Option<Lanes>,
    /// The kernel has killed a process of ours for want of memory since the engine started.
    pub was_oom_killed: bool,
}

impl From<Exit> for EngineEnd {
    fn from(exit: Exit) -> Self {
        Self {
            exit,
            lanes: None,
            was_oom_killed: false,
        }
    }
}

impl EngineEnd {
    /// The cause, if nothing else is known to have ended the engine.
    pub(super) fn cause(&self) -> Cause {
        if self.was_oom_killed && self.exit == Exit::Signal(SIGKILL) {
            Cause::OutOfMemory
        } else {
            Cause::Exited(self.exit)
        }
    }
}

const SIGINT: i32 = 2;
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// What Rust's runtime exits with when `main` panicked.
const EXIT_PANIC: i32 = 101;

/// Why an engine counts as dead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("the engine ended with {0}")]
    Exited(Exit),
    #[error("the kernel killed the engine for want of memory")]
    OutOfMemory,
    #[error("the engine was stuck in {doing} for {stuck_ms} ms")]
    Hang { doing: &'static str, stuck_ms: u64 },
    #[error("generators latched too often")]
    LatchedTooOften,
    #[error("the engine could not be started: {message}")]
    NotStarted { message: String },
    #[error("the engine did not say hello in time")]
    NoHello,
    #[error("the engine stopped making progress while loading")]
    LoadStalled,
    #[error("the engine could not load the model for want of memory")]
    LoadOutOfMemory,
    #[error("the engine broke the pipe: {0}")]
    BadFrame(FrameError),
    #[error("the engine broke the protocol: {0}")]
    Violation(Violation),
}

impl Cause {
    /// For metrics: a small, closed set.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Exited(Exit::Code(EXIT_PANIC)) => "panic",
            Self::Exited(Exit::Code(_)) => "exit",
            Self::Exited(Exit::Signal(SIGABRT)) => "abort",
            Self::Exited(Exit::Signal(SIGKILL)) => "killed",
            Self::Exited(Exit::Signal(_)) => "signal",
            Self::Exited(Exit::Unreaped) => "unreaped",
            Self::OutOfMemory => "oom",
            Self::Hang { .. } => "hang",
            Self::LatchedTooOften => "latches",
            Self::NotStarted { .. } => "spawn",
            Self::NoHello => "hello",
            Self::LoadStalled => "load_stalled",
            Self::LoadOutOfMemory => "load_memory",
            Self::BadFrame(_) => "ipc",
            Self::Violation(_) => "protocol",
        }
    }

    /// Whether the work the engine had may be what killed it. Signals that people and
    /// service managers send say nothing about the work; the kernel's own for want of memory does.
    #[must_use]
    pub fn implicates_work(&self) -> bool {
        match self {
            Self::Exited(Exit::Signal(SIGKILL | SIGTERM | SIGINT) | Exit::Unreaped)
            | Self::LatchedTooOften
            | Self::NotStarted { .. }
            | Self::NoHello
            | Self::LoadStalled
            | Self::LoadOutOfMemory => false,
            Self::Exited(_)
            | Self::OutOfMemory
            | Self::Hang { .. }
            | Self::BadFrame(_)
            | Self::Violation(_) => true,
        }
    }

    /// What the guilty request is told.
    pub(super) fn verdict(&self) -> Fault {
        match self {
            Self::Hang { .. } => Fault::EngineStalled,
            _ => Fault::EngineCrashed,
        }
    }

    pub(super) fn kind(&self) -> FaultKind {
        match self {
            Self::BadFrame(_) | Self::Violation(_) => FaultKind::ProtocolViolation,
            _ => FaultKind::EngineDeath,
        }
    }
}
