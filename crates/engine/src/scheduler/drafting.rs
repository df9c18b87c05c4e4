//! Which drafts the next step computes: rows for tokens that sequences may be about to draw.
//! Whatever is drafted, what is drawn stays the same; only the number of steps changes.

use relight_protocol::limits::{DRAFT_ROWS_MAX, DRAFT_TOKENS_MAX};

use super::Scheduler;
use crate::row_times::RowTimes;

/// When tokens are drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drafting {
    Never,
    /// As far as it should save time.
    Adaptive,
    /// As far as possible, for tests.
    Eager,
}

/// Tokens for the time, relative to no drafts, below which none are tried.
const GAIN_MIN: f64 = 1.05;

/// A draft that may be computed.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Index of its sequence among the running ones.
    index: usize,
    token: u32,
    /// Of being drawn: that all before it are right, and it too.
    probability: f32,
}

impl Scheduler {
    /// What the numbers of rows of a step without prompts cost.
    pub fn set_row_times(&mut self, times: RowTimes) {
        self.row_times = times;
    }

    /// Gives the running sequences their drafts for the next step. Prompts make a step a
    /// matter of arithmetic, in which a row costs what it brings at best: beside them
    /// nothing is drafted.
    pub(super) fn draft(&mut self) {
        for sequence in &mut self.running {
            sequence.set_drafts(Vec::new());
        }
        let drafting = self.config.drafting;
        let rows = self.running.len();
        let rows_max = DRAFT_ROWS_MAX.min(self.config.batch_rows);
        let are_answers = self.running.iter().all(|other| other.remaining() == 1);
        if drafting == Drafting::Never || !are_answers || rows >= rows_max {
            return;
        }
        let mut candidates = self.candidates();
        candidates.truncate(rows_max - rows);
        if drafting == Drafting::Adaptive {
            let worth = worthwhile(&candidates, rows, &self.row_times);
            candidates.truncate(worth);
        }
        for index in 0..rows {
            let own = candidates.iter().filter(|other| other.index == index);
            let drafts: Vec<u32> = own.map(|candidate| candidate.token).collect();
            if !drafts.is_empty() {
                self.place_drafts(index, drafts);
            }
        }
    }

    /// All that could be drafted, the likeliest first, and each sequence's in order.
    fn candidates(&mut self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (index, sequence) in self.running.iter_mut().enumerate() {
            let drafts = sequence.guess(DRAFT_TOKENS_MAX);
            candidates.extend(drafts.into_iter().map(|(token, probability)| Candidate {
                index,
                token,
                probability,
            }));
        }
        // Those of a sequence are in falling order already, and the sort is stable.
        candidates.sort_by(|left, right| right.probability.total_cmp(&left.probability));
        candidates
    }

    /// Hands a sequence its drafts, as far as there are pages for them that no other one may
    /// want in its next step.
    fn place_drafts(&mut self, index: usize, mut drafts: Vec<u32>) {
        let others = self.running.len();
        let Some(sequence) = self.running.get_mut(index) else {
            return;
        };
        let missing = sequence.missing_pages_for(drafts.len());
        if missing + others <= self.store.available_count()
            && let Some(pages) = self.store.take(missing)
        {
            sequence.add_pages(pages);
        }
        drafts.truncate(sequence.room_in_pages());
        sequence.set_drafts(drafts);
    }
}

/// How many of the likeliest drafts bring the most tokens for the time of a step that has
/// `rows` rows without them.
fn worthwhile(candidates: &[Candidate], rows: usize, times: &RowTimes) -> usize {
    // Rows are few, so the conversion is exact.
    let mut tokens = f64::from(u32::try_from(rows).unwrap_or(u32::MAX));
    let mut best = (0, GAIN_MIN * tokens / times.of(rows));
    for (count, candidate) in (1..).zip(candidates) {
        tokens += f64::from(candidate.probability);
        let rate = tokens / times.of(rows + count);
        if rate > best.1 {
            best = (count, rate);
        }
    }
    best.0
}

#[cfg(test)]
mod tests;
