//! How long things should take, so that the watchdog can tell slow from stuck. It is meant to
//! err upwards: a prediction that is too low could end in a kill, one that is too high only
//! delays one.
//!
//! ```text
//!   t(step) = a + b rows + c keys            a, b, c unknown, none negative, b >= R c
//!   load    = R rows + keys
//!   t(step) <= max(1, rows / rows', load / load') t(step')        for any step'
//! ```
//!
//! A row goes through all weights, which is the work of about 6 keys for each element of the
//! model's width: hence R. So every step that was measured bounds all others. Measurements are kept by size, some of
//! each; the slowest of a size stands for it, and of the bounds that sizes give the lowest is
//! taken. A machine that gets busy makes all of that too low: the worst recent ratio of
//! measurement to bound is put on top, and forgotten slowly.

use std::collections::VecDeque;
use std::time::Duration;

/// As long as no step was measured, a machine is taken for one that reads so many parameters
/// per millisecond, once per step and again, faster, per row.
const PARAMETERS_PER_MS: u64 = 200_000;
const ROW_PARAMETERS_PER_MS: u64 = 1_000_000;
const UNMEASURED_MS_MIN: u64 = 500;
/// Keys that cost no more than a row, in any model worth the name: R above.
const KEYS_PER_ROW: u64 = 256;
/// Private work of one request other than preparing it: thousands of times what it takes.
pub(crate) const PRIVATE_MS: u64 = 100;
/// Preparing a request: templates may run for long whatever their length, and text goes
/// through the tokenizer at several megabytes per second.
const PREPARE_MS_MIN: u64 = 500;
const PREPARE_BYTES_PER_MS: u64 = 512;

/// Sizes of steps that are told apart, by powers of two of their rows.
const SIZES: usize = 20;
/// Measurements that are kept of each.
const KEPT: usize = 8;
/// What is left of the pressure, above 1, after another step.
const PRESSURE_DECAY: f64 = 0.98;
const PRESSURE_MAX: f64 = 20.0;
/// What a step may take more than it should without that being pressure: a machine that does
/// other things too takes a processor away for such a while at any time. No prediction is less.
const HICCUP_MS: f64 = 100.0;

/// What a step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    pub rows: u64,
    /// Keys that the rows attend to, all together.
    pub keys: u64,
}

impl StepWork {
    /// The larger of the ratios to another step, at least 1.
    fn stretch(self, other: Self) -> f64 {
        let ratio = |own: u64, other: u64| approximate(own) / approximate(other.max(1));
        ratio(self.rows, other.rows)
            .max(ratio(self.load(), other.load()))
            .max(1.0)
    }

    fn load(self) -> u64 {
        KEYS_PER_ROW * self.rows + self.keys
    }

    fn size(self) -> usize {
        let size = usize::try_from(self.rows.max(1).ilog2()).unwrap_or(0);
        size.min(SIZES - 1)
    }
}

/// Counts of rows and keys are far below 2^52.
fn approximate(count: u64) -> f64 {
    let high = u32::try_from(count >> 32).unwrap_or(u32::MAX);
    let low = u32::try_from(count & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

#[derive(Clone, Copy, Debug)]
struct Measurement {
    work: StepWork,
    ms: f64,
}

/// See the module.
#[derive(Debug)]
pub struct CostModel {
    /// Of the model that is computed.
    parameters: u64,
    by_size: Vec<VecDeque<Measurement>>,
    /// How much slower than predicted the machine is, at least 1.
    pressure: f64,
}

impl CostModel {
    /// Nothing is measured yet.
    #[must_use]
    pub fn new(parameters: u64) -> Self {
        Self {
            parameters,
            by_size: vec![VecDeque::with_capacity(KEPT); SIZES],
            pressure: 1.0,
        }
    }

    /// Milliseconds that a step should take.
    #[must_use]
    pub fn predict(&self, work: StepWork) -> u64 {
        let Some(bound) = self.bound(work) else {
            let once = self.parameters / PARAMETERS_PER_MS;
            let rows = (self.parameters / ROW_PARAMETERS_PER_MS).saturating_mul(work.rows);
            return (UNMEASURED_MS_MIN + once).saturating_add(rows);
        };
        let ms = bound.max(HICCUP_MS) * self.pressure;
        let ms = Duration::try_from_secs_f64(ms / 1000.0);
        let ms = ms.map_or(u128::MAX, |duration| duration.as_millis());
        u64::try_from(ms).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Learns how long a step took.
    pub fn learn(&mut self, work: StepWork, took: Duration) {
        let ms = took.as_secs_f64() * 1000.0;
        let expected = self.bound(work).map_or(ms, |bound| bound.max(HICCUP_MS));
        let excess = ms / expected.max(HICCUP_MS);
        let decayed = 1.0 + (self.pressure - 1.0) * PRESSURE_DECAY;
        self.pressure = decayed.max(excess).min(PRESSURE_MAX);
        if let Some(kept) = self.by_size.get_mut(work.size()) {
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(Measurement { work, ms });
        }
    }

    fn bound(&self, work: StepWork) -> Option<f64> {
        let bounds = self.by_size.iter().filter_map(|kept| {
            let bounds = kept.iter().map(|seen| seen.ms * work.stretch(seen.work));
            bounds.max_by(f64::total_cmp)
        });
        bounds.min_by(f64::total_cmp)
    }
}

/// Milliseconds that preparing a request of so many bytes should take.
#[must_use]
pub fn prepare_ms(bytes: usize) -> u64 {
    PREPARE_MS_MIN + bytes as u64 / PREPARE_BYTES_PER_MS
}

#[cfg(test)]
mod tests;
