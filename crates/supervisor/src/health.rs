//! What the supervisor says about itself: health for probes, a snapshot for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use relight_protocol::{ModelCard, Stats};

/// The one word of health. Ready and degraded answer probes with success; all others not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// The first engine has been spawned and has not said hello.
    #[default]
    Starting,
    /// The first engine is loading its model.
    Loading,
    Ready,
    /// Requests are served, but faults were contained within the last minute.
    Degraded,
    /// The engine died; a new one is on its way and in-flight requests wait for it.
    Recovering,
    /// The model cannot be loaded, or the engine died too often. Still probing in the second case.
    Failed,
    /// Shutting down: what runs may finish, nothing new is taken.
    Draining,
    /// The supervisor is gone.
    Stopped,
}

impl Status {
    /// Whether a request sent now will be worked on now.
    #[must_use]
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }

    /// One lower-case word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Recovering => "recovering",
            Self::Failed => "failed",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// Bytes of tensors loaded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// The truth about whether tokens can be produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    pub status: Status,
    /// The model of the engine that is up, or was up last.
    pub card: Option<Arc<ModelCard>>,
    pub loading: Option<LoadProgress>,
    pub engine_pid: Option<u32>,
    /// Engines lost since the start.
    pub restarts: u64,
    /// Faults that cost no engine, within the last minute: while there are any, the status is
    /// degraded at best.
    pub recent_faults: u64,
    /// All of them since the start.
    pub contained_faults: u64,
    /// Time since a token was last committed; `None` before the first.
    pub last_generation_age: Option<Duration>,
    /// The last fault in words, and how long ago it was. It stays after recovery.
    pub last_fault: Option<(String, Duration)>,
    /// What to tell a client that is refused now.
    pub retry_after_s: u32,
}

/// Times from the detection of an engine's death to the next committed token (or to a ready
/// engine, if no request was in flight), as a cumulative histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recoveries {
    pub counts: [u64; Self::BOUNDS_S.len()],
    /// Also those above the last bound.
    pub total_count: u64,
    pub sum_s: f64,
    pub longest_s: f64,
}

impl Recoveries {
    /// Upper bounds of the buckets, in seconds.
    pub const BOUNDS_S: [f64; 12] = [
        0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ];

    pub(crate) fn record(&mut self, taken: Duration) {
        let seconds = taken.as_secs_f64();
        for (count, bound) in self.counts.iter_mut().zip(Self::BOUNDS_S) {
            *count += u64::from(seconds <= bound);
        }
        self.total_count += 1;
        self.sum_s += seconds;
        self.longest_s = self.longest_s.max(seconds);
    }
}

/// Raw data for metrics. Counters never fall, whatever happens to engines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Counters summed over all engines so far; gauges of the engine that is up.
    pub stats: Stats,
    /// Engines lost, by cause; `hang` are those that the watchdog killed.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Generators replaced within their engine, by cause.
    pub latches: BTreeMap<&'static str, u64>,
    /// Faults that cost one request and nobody else anything, by phase.
    pub contained: BTreeMap<&'static str, u64>,
    /// Frames, ids or indices that an engine got wrong.
    pub protocol_violations_total: u64,
    /// Events the ledger had already.
    pub duplicate_events_total: u64,
    /// Engine's usage figures that differed from the ledger's; the ledger's were sent.
    pub usage_corrections_total: u64,
    pub requests_submitted_total: u64,
    /// Closed requests by outcome: `stop`, `length`, `cancelled`, `failed`, `refused`.
    pub requests: BTreeMap<&'static str, u64>,
    /// Failed and refused requests by fault.
    pub faults: BTreeMap<&'static str, u64>,
    /// Requests taken up again by another engine, once per time.
    pub requests_resumed_total: u64,
    /// Prompt and committed tokens given to an engine again.
    pub tokens_replayed_total: u64,
    pub quarantines_total: u64,
    pub quarantine_hits_total: u64,
    pub recoveries: Recoveries,
    /// Requests in the front that wait for an engine.
    pub queue_depth: usize,
    /// Requests that an engine holds.
    pub in_flight: usize,
    /// How many it may hold: fewer for a while after it ran out of memory.
    pub in_flight_max: usize,
    /// Requests that may have ended an engine.
    pub suspects: usize,
    /// Request bytes in the ledger.
    pub ledger_bytes: usize,
    /// Bugs of ours that were noticed and survived.
    pub invariant_breaches_total: u64,
}
