//! What a few more rows cost a step in which answers only draw their next tokens: what
//! decides whether a draft is worth computing. Only the proportions matter, so everything is
//! told in units of a step with one row.
//!
//! A first guess says that each row beyond the first adds a fixed part of a step. Each number
//! of rows has a correction to it, which is slowly forgotten. The unit follows the newest
//! steps, whatever their rows, and so takes up all that slows down any step alike; what a step
//! says about its number of rows is how it differs from the one before it, if that had another.

use std::time::Duration;

use relight_protocol::limits::DRAFT_ROWS_MAX;

/// What a further row is taken to cost: measured with AVX2 kernels, which are bound by memory
/// with one row and by arithmetic from about four on.
const ROW_GUESS: f64 = 0.25;
/// The newest step counts one part in so many for the unit.
const MEMORY: f64 = 4.0;
/// Part of a surprise that goes into a correction.
const LEARNT: f64 = 0.5;
/// A step that takes longer than expected by more than this was held up by something else.
const SURPRISE_MAX: f64 = 2.0;
/// Part of a correction that is left after a step.
const KEPT: f64 = 0.998;

/// See the module.
#[derive(Clone, Debug)]
pub struct RowTimes {
    /// Milliseconds of a step with one row, once something was measured.
    unit_ms: Option<f64>,
    /// Of the newest step.
    rows: usize,
    /// By rows.
    corrections: [f64; DRAFT_ROWS_MAX + 1],
}

impl Default for RowTimes {
    fn default() -> Self {
        Self {
            unit_ms: None,
            rows: 0,
            corrections: [1.0; DRAFT_ROWS_MAX + 1],
        }
    }
}

impl RowTimes {
    /// Time of a step with `rows` rows, in steps with one row.
    #[must_use]
    pub fn of(&self, rows: usize) -> f64 {
        let correction = self.corrections.get(rows).copied();
        guess(rows) * correction.unwrap_or(1.0)
    }

    /// Learns how long a step took that had `rows` rows, all of them with logits.
    pub fn learn(&mut self, rows: usize, took: Duration) {
        let took_ms = took.as_secs_f64() * 1000.0;
        if rows == 0 || rows > DRAFT_ROWS_MAX || took_ms <= 0.0 {
            return;
        }
        let unit_ms = self.unit_ms.unwrap_or_else(|| took_ms / self.of(rows));
        let surprise = took_ms / (unit_ms * self.of(rows));
        let surprise = surprise.clamp(1.0 / SURPRISE_MAX, SURPRISE_MAX);
        for correction in &mut self.corrections {
            *correction = 1.0 + (*correction - 1.0) * KEPT;
        }
        if rows != self.rows
            && let Some(correction) = self.corrections.get_mut(rows)
        {
            *correction *= 1.0 + (surprise - 1.0) * LEARNT;
        }
        self.rows = rows;
        self.unit_ms = Some(unit_ms * (1.0 + (surprise - 1.0) / MEMORY));
    }
}

/// The first guess for a step with `rows` rows, in steps with one. Rows are few, so the conversion is exact.
pub(crate) fn guess(rows: usize) -> f64 {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    1.0 + f64::from(rows.saturating_sub(1)) * ROW_GUESS
}

#[cfg(test)]
mod tests;
