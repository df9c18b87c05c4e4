//! Why an engine is gone.

use relight_protocol::FrameError;

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
            Self::NotStarted { .. } => "spawn",
            Self::NoHello => "hello",
            Self::LoadStalled => "load_stalled",
            Self::LoadOutOfMemory => "load_memory",
            Self::BadFrame(_) => "ipc",
            Self::Violation(_) => "protocol",
        }
    }

    /// Whether the work the engine had may be what killed it. Signals that people and
    /// service managers send say nothing about the work.
    #[must_use]
    pub fn implicates_work(&self) -> bool {
        match self {
            Self::Exited(Exit::Signal(SIGKILL | SIGTERM | SIGINT) | Exit::Unreaped)
            | Self::NotStarted { .. }
            | Self::NoHello
            | Self::LoadStalled
            | Self::LoadOutOfMemory => false,
            Self::Exited(_) | Self::BadFrame(_) | Self::Violation(_) => true,
        }
    }
}
