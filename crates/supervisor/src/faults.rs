//! Fault records: what failed, who was suspected, and how long it took until all was well.
//!
//! A record is opened when its fault is detected and completed as things happen. The newest
//! `FAULT_RECORDS_MAX` are kept. Readers share them, so that publishing costs nothing while
//! nothing changes.

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::Arc;

use relight_protocol::{Phase, RequestId, limits};

/// Names a record: `f1`, `f2`, ... in the order of detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultId(pub u64);

impl std::fmt::Display for FaultId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "f{}", self.0)
    }
}

/// The text names no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fault's id is the letter f and a number")]
pub struct NoFaultId;

impl FromStr for FaultId {
    type Err = NoFaultId;

    fn from_str(text: &str) -> Result<Self, NoFaultId> {
        let number = text.strip_prefix('f').ok_or(NoFaultId)?;
        // A number may carry a sign for `parse`.
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoFaultId);
        }
        number.parse().map(Self).map_err(|_no_number| NoFaultId)
    }
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// An engine process ended, was killed for want of progress, or could not be started.
    EngineDeath,
    /// A generator was replaced within its engine.
    Latch,
    /// One request failed in its own work, and nothing else did.
    Contained,
    /// An engine said what it may not say, and was killed for it.
    ProtocolViolation,
    /// A client read too slowly for its buffer.
    ReaderTooSlow,
    /// A request was found guilty.
    Quarantine,
}

impl FaultKind {
    /// In lower case, with underscores.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::EngineDeath => "engine_death",
            Self::Latch => "latch",
            Self::Contained => "contained",
            Self::ProtocolViolation => "protocol_violation",
            Self::ReaderTooSlow => "reader_too_slow",
            Self::Quarantine => "quarantine",
        }
    }
}

/// What happened after the detection of a fault, in milliseconds since then; `None` if it
/// has not happened, or will not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The fault can do no more harm: the engine is gone, the request is closed.
    pub contained_ms: Option<u64>,
    /// An engine is ready again, or still.
    pub engine_up_ms: Option<u64>,
    /// The next token of any request was committed.
    pub resumed_ms: Option<u64>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRecord {
    pub id: FaultId,
    /// When it was detected, in milliseconds since 1970.
    pub unix_ms: u64,
    pub kind: FaultKind,
    /// One word of a small set, as in metrics.
    pub cause: &'static str,
    /// The cause in words.
    pub description: String,
    /// Which engine, counted from 1; 0 before the first.
    pub engine: u64,
    /// What was being done: `step`, or a phase of a request's own work.
    pub phase: Option<&'static str>,
    /// Requests that may have caused it; the only one if that is certain.
    pub suspects: Vec<RequestId>,
    pub timeline: Timeline,
    /// Nothing more will be added.
    pub is_over: bool,
    /// What panicked where, and the way there.
    pub report: Option<String>,
    /// Requests that went on or will go on in spite of it.
    pub requests_resumed: usize,
    /// Requests that failed because of it.
    pub requests_failed: usize,
    /// As `unix_ms`, on the core's clock.
    detected_ms: u64,
}

/// The word for a phase in records and metrics.
#[must_use]
pub(crate) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Prepare => "prepare",
        Phase::Admit => "admit",
        Phase::Sample => "sample",
        Phase::Detokenize => "detokenize",
        Phase::Emit => "emit",
    }
}

/// Records in the order of their ids, and which of them wait to be completed.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    /// The wall clock when the core's clock was zero.
    epoch_unix_ms: u64,
    now_ms: u64,
    newest: u64,
    records: VecDeque<Arc<FaultRecord>>,
    /// Deaths and latches after which no token has been committed yet.
    unresolved: Vec<FaultId>,
    /// `None` if there is something new.
    published: Option<Arc<[Arc<FaultRecord>]>>,
}

impl FaultLog {
    /// Wall-clock time of the core's time zero.
    pub(crate) fn set_epoch(&mut self, unix_ms: u64) {
        self.epoch_unix_ms = unix_ms;
    }

    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// A fault is detected.
    pub(crate) fn open(
        &mut self,
        kind: FaultKind,
        cause: &'static str,
        description: String,
    ) -> FaultId {
        self.newest = self.newest.saturating_add(1);
        let id = FaultId(self.newest);
        if self.records.len() >= limits::FAULT_RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(Arc::new(FaultRecord {
            id,
            unix_ms: self.epoch_unix_ms.saturating_add(self.now_ms),
            kind,
            cause,
            description,
            engine: 0,
            phase: None,
            suspects: Vec::new(),
            timeline: Timeline::default(),
            is_over: false,
            report: None,
            requests_resumed: 0,
            requests_failed: 0,
            detected_ms: self.now_ms,
        }));
        self.published = None;
        id
    }

    /// Adds to a record that is still kept.
    pub(crate) fn amend(&mut self, id: FaultId, change: impl FnOnce(&mut FaultRecord)) {
        let oldest = self.records.front().map_or(0, |record| record.id.0);
        let index = id.0.checked_sub(oldest).map(usize::try_from);
        let Some(Ok(index)) = index else { return };
        if let Some(record) = self.records.get_mut(index) {
            change(Arc::make_mut(record));
            self.published = None;
        }
    }

    /// The fault can do no more harm, and nobody has to recover from it.
    pub(crate) fn over(&mut self, id: FaultId) {
        let now_ms = self.now_ms;
        self.amend(id, |record| {
            record.timeline.contained_ms = Some(now_ms.saturating_sub(record.detected_ms));
            record.is_over = true;
        });
    }

    /// The fault can do no more harm, and is over once an engine is up and has made a token.
    pub(crate) fn contained(&mut self, id: FaultId) {
        let now_ms = self.now_ms;
        self.amend(id, |record| {
            record.timeline.contained_ms = Some(now_ms.saturating_sub(record.detected_ms));
        });
        if self.unresolved.len() >= limits::FAULT_RECORDS_MAX {
            self.unresolved.remove(0);
        }
        self.unresolved.push(id);
    }

    pub(crate) fn engine_up(&mut self) {
        let now_ms = self.now_ms;
        for id in self.unresolved.clone() {
            self.amend(id, |record| {
                let since_ms = now_ms.saturating_sub(record.detected_ms);
                record.timeline.engine_up_ms.get_or_insert(since_ms);
            });
        }
    }

    pub(crate) fn token_committed(&mut self) {
        let now_ms = self.now_ms;
        for id in std::mem::take(&mut self.unresolved) {
            self.amend(id, |record| {
                record.timeline.resumed_ms = Some(now_ms.saturating_sub(record.detected_ms));
                record.is_over = true;
            });
        }
    }

    /// Nothing waits for a token: what was broken is whole again.
    pub(crate) fn nothing_to_resume(&mut self) {
        for id in std::mem::take(&mut self.unresolved) {
            self.amend(id, |record| record.is_over = true);
        }
    }

    /// All records, oldest first.
    pub(crate) fn publish(&mut self) -> Arc<[Arc<FaultRecord>]> {
        let records = &self.records;
        let all = || records.iter().map(Arc::clone).collect();
        Arc::clone(self.published.get_or_insert_with(all))
    }
}

#[cfg(test)]
mod tests;
