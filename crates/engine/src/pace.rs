//! How many rows a step may have while answers wait for their next token: as many as keep it
//! within [`FLOW`] times what the same answers would take without prompts, and less where that
//! is a pause by itself. So tokens flow evenly, whatever the size of the model, and about half
//! of the time is the prompts' all the same. Unlike the cost model, which must not predict too
//! little, this one follows the mean.

use std::time::Duration;

use relight_protocol::limits::SLOTS_MAX;

use crate::cost::StepWork;
use crate::row_times::guess;
use crate::scheduler::StepKind;

/// A step beside prompts for one without. The promise is that a pause stays below three of the
/// usual ones; single steps take more than the mean.
const FLOW: f64 = 2.3;
/// The same where it takes more than a `PAUSE`.
const FLOW_SLOW: f64 = 2.0;
/// Also what a step with prompts may take before one without was seen.
const PAUSE: Duration = Duration::from_millis(50);
/// Fewer rows cost the weights' way through memory and hardly more each, so they tell nothing
/// about a row; and a step is never held to fewer, for prompts would pay that way again and
/// again.
const ROWS_MIN: u32 = 16;
/// The newest step counts one part in so many.
const MEMORY: u32 = 5;
/// Numbers of answers are told apart by powers of two.
const SIZES: usize = SLOTS_MAX.ilog2() as usize + 1;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Time for each row of a step of prompts alone.
    prompt_row: Option<Duration>,
    /// The same beside answers: such steps are shorter, and a row costs more of the
    /// weights' way.
    mixed_row: Option<Duration>,
    /// Time of a step of answers alone, by their number and as if there were one.
    answer: [Option<Duration>; SIZES],
}

impl Pace {
    /// Learns how long a step took.
    pub fn learn(&mut self, work: StepWork, kind: StepKind, took: Duration) {
        let rows = u32::try_from(work.rows).unwrap_or(u32::MAX);
        let answers = usize::try_from(work.rows).unwrap_or(usize::MAX);
        match kind {
            StepKind::Answers => {
                if let Some(known) = self.answer.get_mut(size(answers)) {
                    follow(known, took.div_f64(guess(answers)));
                }
            }
            StepKind::Prompts if rows >= ROWS_MIN => follow(&mut self.prompt_row, took / rows),
            StepKind::Mixed if rows >= ROWS_MIN => follow(&mut self.mixed_row, took / rows),
            StepKind::Prompts | StepKind::Mixed => {}
        }
    }

    /// Rows that a step with prompts may have beside so many answers, which counts those
    /// whose prompts it is about.
    #[must_use]
    pub fn rows(&self, answers: usize) -> usize {
        let Some(row) = self.mixed_row.or(self.prompt_row) else {
            return usize::MAX;
        };
        let alone = self.alone(answers);
        let pause = alone.map_or(PAUSE, |alone| {
            let slow = alone.mul_f64(FLOW_SLOW).max(PAUSE);
            alone.mul_f64(FLOW).min(slow)
        });
        let rows = pause.as_nanos() / row.as_nanos().max(1);
        let rows = rows.max(u128::from(ROWS_MIN));
        usize::try_from(rows).unwrap_or(usize::MAX)
    }

    /// What a step of so many answers takes, by the most similar number that was seen.
    fn alone(&self, answers: usize) -> Option<Duration> {
        let wanted = size(answers);
        let seen = self.answer.iter().enumerate();
        let seen = seen.filter_map(|(size, unit)| Some((size, (*unit)?)));
        let (_size, unit) = seen.min_by_key(|(size, _unit)| size.abs_diff(wanted))?;
        Some(unit.mul_f64(guess(answers.min(SLOTS_MAX))))
    }
}

fn size(answers: usize) -> usize {
    let answers = answers.clamp(1, SLOTS_MAX);
    usize::try_from(answers.ilog2()).unwrap_or(0)
}

fn follow(mean: &mut Option<Duration>, newest: Duration) {
    let known = mean.unwrap_or(newest);
    *mean = Some((known * (MEMORY - 1) + newest) / MEMORY);
}

#[cfg(test)]
mod tests;
