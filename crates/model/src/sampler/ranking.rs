//! Order statistics of a row of logits, without sorting the vocabulary.

use std::cmp::Ordering;

/// Logits whose maxima are kept together.
const BLOCK: usize = 64;

/// A token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) token: u32,
    pub(super) logit: f32,
}

impl Candidate {
    /// Higher logit first, then lower id. Logits are not NaN.
    fn order(&self, other: &Self) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit);
        by_logit
            .unwrap_or(Ordering::Equal)
            .then(self.token.cmp(&other.token))
    }
}

/// The largest logit; negative infinity if there is none.
pub(super) fn maximum(logits: &[f32]) -> f32 {
    block_maxima(logits).fold(f32::NEG_INFINITY, larger)
}

/// Index of the first largest logit.
pub(super) fn first_maximum(logits: &[f32]) -> Option<u32> {
    let maximum = maximum(logits);
    let index = logits.iter().position(|&logit| logit == maximum)?;
    u32::try_from(index).ok()
}

/// Whether every logit is a number below positive infinity.
pub fn are_usable(logits: &[f32]) -> bool {
    logits.chunks(BLOCK).all(|block| {
        block
            .iter()
            .fold(true, |usable, &logit| usable & (logit < f32::INFINITY))
    })
}

fn larger(left: f32, right: f32) -> f32 {
    if right > left { right } else { left }
}

fn block_maxima(logits: &[f32]) -> impl Iterator<Item = f32> {
    logits.chunks(BLOCK).map(|block| {
        let (words, rest) = block.as_chunks::<8>();
        let mut lanes = [f32::NEG_INFINITY; 8];
        for word in words {
            for (lane, &logit) in lanes.iter_mut().zip(word) {
                *lane = larger(*lane, logit);
            }
        }
        lanes
            .iter()
            .chain(rest)
            .copied()
            .fold(f32::NEG_INFINITY, larger)
    })
}

/// The `count` best candidates in order; fewer if there are fewer. Negative infinity is no
/// candidate.
///
/// The `count`-th largest block maximum bounds the `count`-th largest logit from below, so
/// only blocks that reach it are looked into.
pub(super) fn best(logits: &[f32], count: usize) -> Vec<Candidate> {
    let mut maxima: Vec<f32> = block_maxima(logits).collect();
    let mut threshold = f32::NEG_INFINITY;
    let last = count.saturating_sub(1);
    if last < maxima.len() {
        let (_, bound, _) = maxima.select_nth_unstable_by(last, |left, right| {
            right.partial_cmp(left).unwrap_or(Ordering::Equal)
        });
        threshold = *bound;
    }
    let mut candidates = Vec::with_capacity(count.min(logits.len()));
    for (block, maximum) in (0..).step_by(BLOCK).zip(block_maxima(logits)) {
        if maximum < threshold {
            continue;
        }
        let members = logits.iter().enumerate().skip(block).take(BLOCK);
        candidates.extend(
            members
                .filter(|&(_, &logit)| logit >= threshold && logit > f32::NEG_INFINITY)
                .map(|(token, &logit)| Candidate {
                    // Vocabularies are indexed by u32.
                    token: u32::try_from(token).unwrap_or(u32::MAX),
                    logit,
                }),
        );
    }
    if last < candidates.len() {
        candidates.select_nth_unstable_by(last, Candidate::order);
        candidates.truncate(count);
    }
    candidates.sort_unstable_by(Candidate::order);
    candidates
}

/// Intervals of logits that [`Shelves`] tells apart.
const SHELVES: usize = 2048;
/// A logit so far below the best, in temperatures, has no weight.
const DEPTH: f32 = 88.0;

/// All candidates, roughly in order: sorted only as far as somebody walks. Those without any
/// weight are all on the last shelf.
#[derive(Debug)]
pub(super) struct Shelves {
    /// Shelf by shelf, the best first.
    candidates: Vec<Candidate>,
    /// Where the next shelf ends, by shelf.
    ends: Vec<usize>,
    /// How many candidates are in order, and how many shelves that is.
    sorted: (usize, usize),
}

impl Shelves {
    pub(super) fn new(logits: &[f32], maximum: f32, temperature: f32) -> Self {
        let scale = SHELVES as f32 / (DEPTH * temperature);
        let mut ends = vec![0; SHELVES];
        let members = || logits.iter().filter(|&&logit| logit > f32::NEG_INFINITY);
        for &logit in members() {
            if let Some(count) = ends.get_mut(shelf(logit, maximum, scale)) {
                *count += 1;
            }
        }
        let mut total = 0;
        for end in &mut ends {
            // The start of the shelf, until its candidates have moved it to the end.
            total += std::mem::replace(end, total);
        }
        let nobody = Candidate {
            token: 0,
            logit: f32::NEG_INFINITY,
        };
        let mut candidates = vec![nobody; total];
        for (token, &logit) in (0..).zip(logits) {
            if logit > f32::NEG_INFINITY
                && let Some(place) = ends.get_mut(shelf(logit, maximum, scale))
                && let Some(candidate) = candidates.get_mut(*place)
            {
                *candidate = Candidate { token, logit };
                *place += 1;
            }
        }
        Self {
            candidates,
            ends,
            sorted: (0, 0),
        }
    }

    /// The candidate at `rank`.
    pub(super) fn get(&mut self, rank: usize) -> Option<Candidate> {
        while rank >= self.sorted.0 {
            let (start, shelf) = self.sorted;
            let end = *self.ends.get(shelf)?;
            let members = self.candidates.get_mut(start..end)?;
            members.sort_unstable_by(Candidate::order);
            self.sorted = (end, shelf + 1);
        }
        self.candidates.get(rank).copied()
    }
}

/// The higher the logit, the lower the shelf; equal logits share one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates at both ends, as it should"
)]
fn shelf(logit: f32, maximum: f32, scale: f32) -> usize {
    (((maximum - logit) * scale) as usize).min(SHELVES - 1)
}

#[cfg(test)]
mod tests;
