//! How many requests an engine may hold at once: fewer after it ran out of memory.

use relight_protocol::limits::ADMISSION_RAISE_MS;

/// The bound that holds now, between 1 and the configured one.
#[derive(Debug)]
pub(super) struct Admission {
    limit: usize,
    limit_max: usize,
    /// When the limit was last lowered or raised.
    changed_ms: u64,
}

impl Admission {
    pub(super) fn new(limit_max: usize) -> Self {
        Self {
            limit: limit_max,
            limit_max,
            changed_ms: 0,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// What the engine held was too much: the next one gets half of it.
    pub(super) fn out_of_memory(&mut self, held: usize, now_ms: u64) {
        self.limit = (self.limit.min(held) / 2).max(1);
        self.changed_ms = now_ms;
    }

    /// Raises the limit by one for each `ADMISSION_RAISE_MS` without another death for want
    /// of memory. Requests beyond the engine's `slots` hold next to no memory there, so that
    /// from then on all may come. Whether it was raised.
    pub(super) fn pass_time(&mut self, now_ms: u64, slots: usize) -> bool {
        let quiet_ms = now_ms.saturating_sub(self.changed_ms);
        if self.limit >= self.limit_max || quiet_ms < ADMISSION_RAISE_MS {
            return false;
        }
        self.changed_ms = now_ms;
        self.limit += 1;
        if self.limit >= slots {
            self.limit = self.limit_max;
        }
        true
    }
}

#[cfg(test)]
mod tests;
