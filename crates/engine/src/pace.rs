//! How many rows a step may have while answers wait for their next token: as many as keep the
//! pause between two tokens within `PAUSE_MS`. Unlike the cost model, which must not predict
//! too little, this one follows the mean.

use std::time::Duration;

use relight_protocol::limits::PAUSE_MS;

use crate::cost::StepWork;

/// Fewer rows cost the weights' way through memory and hardly more each, so they tell nothing
/// about a row; and a step is never held to fewer.
const ROWS_MIN: u32 = 16;
/// The newest step counts one part in so many.
const MEMORY: u32 = 5;

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    /// Time for each row of a step that has many.
    row: Option<Duration>,
}

impl Pace {
    /// Learns how long a step took.
    pub fn learn(&mut self, work: StepWork, took: Duration) {
        let rows = u32::try_from(work.rows).unwrap_or(u32::MAX);
        if rows < ROWS_MIN {
            return;
        }
        let newest = took / rows;
        let known = self.row.unwrap_or(newest);
        self.row = Some((known * (MEMORY - 1) + newest) / MEMORY);
    }

    /// Rows that a step beside waiting answers may have.
    #[must_use]
    pub fn rows(&self) -> usize {
        let Some(row) = self.row else {
            return usize::MAX;
        };
        let pause = Duration::from_millis(PAUSE_MS);
        let rows = pause.as_nanos() / row.as_nanos().max(1);
        let rows = rows.max(u128::from(ROWS_MIN));
        usize::try_from(rows).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
