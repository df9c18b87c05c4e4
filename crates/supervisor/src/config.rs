//! What a supervisor is started with.

use std::ffi::OsString;
use std::path::PathBuf;

use relight_protocol::{EngineConfig, limits};

/// How an engine process is started. Its standard input is the control socket, its standard
/// output goes nowhere, its standard error is the supervisor's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCommand {
    pub program: PathBuf,
    /// The program's name in process lists.
    pub shown_as: OsString,
    pub arguments: Vec<OsString>,
    /// Set on top of the supervisor's own environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl EngineCommand {
    /// A command without extra environment.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        let program = program.into();
        Self {
            shown_as: program.clone().into(),
            program,
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
        }
    }
}

/// Bounds that an operator may change; the defaults are those of `limits`, and all but the
/// hang timeout and the restarts can only be tightened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Requests that are open at once, waiting or running.
    pub open_requests_max: usize,
    /// Requests that wait in the front.
    pub queue_requests_max: usize,
    /// Requests that an engine holds at once.
    pub engine_requests_max: usize,
    /// How long a request may wait in the front, in milliseconds.
    pub queue_age_ms_max: u64,
    /// Events buffered for one reader.
    pub reader_events_max: usize,
    /// How long an engine may take to say hello, in milliseconds.
    pub hello_ms_max: u64,
    /// Deaths within `limits::RESTART_PERIOD_MS` after which the model counts as failed.
    pub restarts_max: usize,
    /// How long an engine may be at one thing, in milliseconds, besides what that thing is
    /// predicted to take.
    pub hang_timeout_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            open_requests_max: limits::OPEN_REQUESTS_MAX,
            queue_requests_max: limits::QUEUE_REQUESTS_MAX,
            engine_requests_max: limits::ENGINE_REQUESTS_MAX,
            queue_age_ms_max: limits::QUEUE_AGE_MS_MAX,
            reader_events_max: limits::READER_EVENTS_MAX,
            hello_ms_max: limits::HELLO_MS_MAX,
            restarts_max: limits::RESTARTS_MAX,
            hang_timeout_ms: limits::HANG_TIMEOUT_MS,
        }
    }
}

impl Bounds {
    /// The same bounds, none above the project's maxima and none so small that nothing works.
    #[must_use]
    pub(crate) fn clamped(self) -> Self {
        let most = Self::default();
        Self {
            open_requests_max: self.open_requests_max.clamp(1, most.open_requests_max),
            queue_requests_max: self.queue_requests_max.min(most.queue_requests_max),
            engine_requests_max: self.engine_requests_max.clamp(1, most.engine_requests_max),
            queue_age_ms_max: self.queue_age_ms_max.min(most.queue_age_ms_max),
            reader_events_max: self.reader_events_max.clamp(1, most.reader_events_max),
            hello_ms_max: self.hello_ms_max.clamp(1, most.hello_ms_max),
            restarts_max: self.restarts_max.clamp(1, limits::RESTARTS_CEILING),
            hang_timeout_ms: self
                .hang_timeout_ms
                .clamp(2 * limits::SUPERVISOR_TICK_MS, limits::HANG_TIMEOUT_MS_MAX),
        }
    }
}

/// What a supervisor is started with.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    pub command: EngineCommand,
    /// Sent to every engine; `arenas` is filled in by the supervisor.
    pub engine: EngineConfig,
    pub bounds: Bounds,
}

/// Why a supervisor could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot create the memory file of the {arena} arena")]
    Arena {
        arena: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot start the supervisor's thread")]
    Thread(#[source] std::io::Error),
}
