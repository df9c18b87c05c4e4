//! Virtual time: a clock that jumps from one planned happening to the next.

use std::collections::BTreeMap;

/// What is planned, by time, then in the order in which it was planned.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    now_ms: u64,
    planned: BTreeMap<(u64, u64), T>,
    count: u64,
}

impl<T> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self {
            now_ms: 0,
            planned: BTreeMap::new(),
            count: 0,
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Plans something for a time, or for now if that is past.
    pub(crate) fn at(&mut self, time_ms: u64, what: T) {
        self.count += 1;
        let time_ms = time_ms.max(self.now_ms);
        self.planned.insert((time_ms, self.count), what);
    }

    pub(crate) fn after(&mut self, wait_ms: u64, what: T) {
        self.at(self.now_ms + wait_ms, what);
    }

    /// Moves the clock to the next happening and hands it out.
    pub(crate) fn advance(&mut self) -> Option<T> {
        let ((time_ms, _count), what) = self.planned.pop_first()?;
        self.now_ms = time_ms;
        Some(what)
    }
}
