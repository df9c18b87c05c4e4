//! How often an engine may die. Within the budget each death is followed by a restart after
//! a short, doubling wait; past it the model counts as failed, and restarts become probes.

use std::collections::VecDeque;

use relight_protocol::limits::{
    RESTART_BACKOFF_MS_MAX, RESTART_BACKOFF_MS_MIN, RESTART_PERIOD_MS, RESTARTS_MAX,
};

/// What follows a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Start another engine after this wait.
    Restart { wait_ms: u64 },
    /// Too many deaths within the period.
    Exhausted,
}

/// Times of the deaths within the last period.
#[derive(Debug, Default)]
pub(crate) struct RestartBudget {
    deaths_ms: VecDeque<u64>,
}

impl RestartBudget {
    /// Records a death.
    pub(crate) fn record(&mut self, now_ms: u64) -> Verdict {
        let is_past = |then_ms: u64| now_ms.saturating_sub(then_ms) >= RESTART_PERIOD_MS;
        while self.deaths_ms.front().copied().is_some_and(is_past) {
            self.deaths_ms.pop_front();
        }
        self.deaths_ms.push_back(now_ms);
        let deaths = self.deaths_ms.len();
        if deaths > RESTARTS_MAX {
            self.deaths_ms.pop_front();
            return Verdict::Exhausted;
        }
        let doublings = u32::try_from(deaths.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        let wait_ms = RESTART_BACKOFF_MS_MIN
            .saturating_mul(factor)
            .min(RESTART_BACKOFF_MS_MAX);
        Verdict::Restart { wait_ms }
    }

    /// Starts afresh, after a probe has found that engines live again.
    pub(crate) fn forgive(&mut self) {
        self.deaths_ms.clear();
    }
}

#[cfg(test)]
mod tests;
