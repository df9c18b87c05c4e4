//! How much of the waiting prompts a step takes along while answers are being written: as
//! much as keeps the pause between two tokens within `PAUSE_MS`. Unlike the cost model, which
//! must not predict too little, this one estimates the middle.

use std::time::Duration;

use relight_protocol::limits::PAUSE_MS;

use crate::cost::StepWork;

/// Fewer rows cost the weights' way through memory and hardly more each, so they tell nothing
/// about a row.
const ROWS_MIN: u64 = 16;
/// What the newest step counts.
const NEWEST: f64 = 0.2;

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    /// Milliseconds for each row of a step that has many.
    row_ms: Option<f64>,
}

impl Pace {
    /// Learns how long a step took.
    pub fn learn(&mut self, work: StepWork, took: Duration) {
        let rows = u32::try_from(work.rows).unwrap_or(u32::MAX);
        if work.rows < ROWS_MIN {
            return;
        }
        let ms = took.as_secs_f64() * 1000.0 / f64::from(rows);
        let known = self.row_ms.unwrap_or(ms);
        self.row_ms = Some(known + NEWEST * (ms - known));
    }

    /// Rows that a step beside running answers may have in all; never so few that a prompt
    /// hardly advances.
    #[must_use]
    pub fn rows(&self) -> usize {
        let Some(row_ms) = self.row_ms else {
            return usize::MAX;
        };
        let limit = Duration::from_millis(PAUSE_MS).as_secs_f64() * 1000.0;
        let mut rows = usize::try_from(ROWS_MIN).unwrap_or(usize::MAX);
        while rows < ROWS_LISTED_MAX && row_ms * approximate(rows.saturating_add(STEP)) <= limit {
            rows = rows.saturating_add(STEP);
        }
        rows
    }
}

/// Rows are counted by half a tile of the kernels.
const STEP: usize = 8;
/// No step is larger.
const ROWS_LISTED_MAX: usize = 8192;

fn approximate(rows: usize) -> f64 {
    f64::from(u32::try_from(rows).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
