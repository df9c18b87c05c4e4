//! How often an engine may die. Within the budget each death is followed by a restart after
//! a short, doubling wait; past it the model counts as failed, and restarts become probes.

use std::collections::VecDeque;

use relight_protocol::limits::{RESTART_BACKOFF_MS_MAX, RESTART_BACKOFF_MS_MIN, RESTART_PERIOD_MS};

/// What follows a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Start another engine after this wait.
    Restart { wait_ms: u64 },
    /// Too many deaths within the period.
    Exhausted,
}

/// Times of the deaths within the last period.
#[derive(Debug)]
pub(crate) struct RestartBudget {
    restarts_max: usize,
    deaths_ms: VecDeque<u64>,
    /// Deaths in a row after which no token came.
    fruitless: u32,
}

impl RestartBudget {
    /// `restarts_max` deaths within the period are allowed.
    pub(crate) fn new(restarts_max: usize) -> Self {
        Self {
            restarts_max,
            deaths_ms: VecDeque::new(),
            fruitless: 0,
        }
    }

    /// A token came: the next engine need not be waited for.
    pub(crate) fn progressed(&mut self) {
        self.fruitless = 0;
    }

    /// Records a death.
    pub(crate) fn record(&mut self, now_ms: u64) -> Verdict {
        let is_past = |then_ms: u64| now_ms.saturating_sub(then_ms) >= RESTART_PERIOD_MS;
        while self.deaths_ms.front().copied().is_some_and(is_past) {
            self.deaths_ms.pop_front();
        }
        self.deaths_ms.push_back(now_ms);
        if self.deaths_ms.len() > self.restarts_max {
            self.deaths_ms.pop_front();
            return Verdict::Exhausted;
        }
        let factor = 1_u64.checked_shl(self.fruitless).unwrap_or(u64::MAX);
        self.fruitless = self.fruitless.saturating_add(1);
        let wait_ms = RESTART_BACKOFF_MS_MIN
            .saturating_mul(factor)
            .min(RESTART_BACKOFF_MS_MAX);
        Verdict::Restart { wait_ms }
    }

    /// Starts afresh, after a probe has found that engines live again.
    pub(crate) fn forgive(&mut self) {
        self.deaths_ms.clear();
        self.fruitless = 0;
    }
}

#[cfg(test)]
mod tests;
