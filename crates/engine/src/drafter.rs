//! Guesses what a sequence says next: what followed where its last tokens have occurred
//! before, in prompt or answer. Whether the guesses are any good shows for nothing, because
//! every token that is drawn is compared with the guess, computed or not.
//!
//! The index is that of LZ77: for each pair of tokens the place where it ended last, and for
//! each place the one before it, walked for a few steps in search of the longest match.

/// Places that are looked at for one guess.
const CANDIDATES_MAX: usize = 16;
/// Longest match that is told from longer ones when it is looked for.
const MATCH_MAX: usize = 32;
/// A shorter match is given up for a longer one found elsewhere.
const MATCH_FIRM: usize = 4;
/// After a match of this length one other token is taken for a replaced one.
const MATCH_ALIGNED: usize = 6;
/// Buckets of the index: from as many as this to as many as a long context has tokens.
const BUCKETS_MIN: usize = 256;
const BUCKETS_MAX: usize = 1 << 16;

/// See the module. Memory: four bytes per token, and per bucket.
#[derive(Clone, Debug)]
pub(crate) struct Drafter {
    /// By bucket of a pair: how many tokens there were when it came last; 0 is never.
    latest: Vec<u32>,
    /// By count of tokens: the same of the bucket's pair before.
    earlier: Vec<u32>,
    guess: Option<Guess>,
    rates: Rates,
}

/// The next token is expected to be the one at `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Guess {
    source: usize,
    /// How many tokens before it are the last ones; 0 if one was replaced.
    length: usize,
}

impl Drafter {
    /// Of a sequence that has `tokens`, at most `tokens_max` in the end.
    pub(crate) fn new(tokens: &[u32], tokens_max: usize) -> Self {
        let buckets = tokens_max.clamp(BUCKETS_MIN, BUCKETS_MAX);
        let mut drafter = Self {
            latest: vec![0; buckets.next_power_of_two()],
            earlier: Vec::with_capacity(tokens.len() + 1),
            guess: None,
            rates: Rates::default(),
        };
        for count in 0..tokens.len() {
            drafter.index(tokens.get(..count).unwrap_or_default());
        }
        drafter.guess = drafter.find(tokens);
        drafter.index(tokens);
        drafter
    }

    /// Tells that the last of `tokens` is new.
    pub(crate) fn observe(&mut self, tokens: &[u32]) {
        let old = self.guess.take();
        if let Some(guess) = old {
            let is_right = tokens.get(guess.source) == tokens.last();
            self.rates.learn(guess.length, is_right);
            self.guess = match is_right {
                true => Some(Guess {
                    source: guess.source + 1,
                    length: guess.length + 1,
                }),
                false if guess.length >= MATCH_ALIGNED => Some(Guess {
                    source: guess.source + 1,
                    length: 0,
                }),
                false => None,
            };
        }
        let length = self.guess.map_or(0, |guess| guess.length);
        if length < MATCH_FIRM
            && let Some(found) = self.find(tokens)
            && found.length > length
        {
            self.guess = Some(found);
        }
        self.index(tokens);
    }

    /// At most `count` next tokens of `tokens`, each with the probability that it and all
    /// before it are right.
    pub(crate) fn draft(&self, tokens: &[u32], count: usize) -> Vec<(u32, f32)> {
        let mut drafts: Vec<(u32, f32)> = Vec::new();
        let Some(guess) = self.guess else {
            return drafts;
        };
        let mut probability = 1.0;
        for ahead in 0..count {
            let place = guess.source + ahead;
            // What repeats itself goes on with its own draft.
            let drafted = place.checked_sub(tokens.len());
            let token = match drafted {
                None => tokens.get(place).copied(),
                Some(index) => drafts.get(index).map(|(token, _)| *token),
            };
            let Some(token) = token else {
                break;
            };
            probability *= self.rates.of(guess.length + ahead);
            drafts.push((token, probability));
        }
        drafts
    }

    /// The longest match of the end of `tokens`, the newest of equally long ones.
    fn find(&self, tokens: &[u32]) -> Option<Guess> {
        let mut best: Option<Guess> = None;
        let mut count = *self.latest.get(self.bucket(tokens)?)?;
        for _candidate in 0..CANDIDATES_MAX {
            let source = usize::try_from(count).unwrap_or(usize::MAX);
            if source == 0 {
                break;
            }
            let before = tokens.get(..source).unwrap_or_default();
            let pairs = before.iter().rev().zip(tokens.iter().rev());
            let length = pairs
                .take(MATCH_MAX)
                .take_while(|(left, right)| left == right)
                .count();
            if length >= 2 && best.is_none_or(|best| length > best.length) {
                best = Some(Guess { source, length });
            }
            if length == MATCH_MAX {
                break;
            }
            count = self.earlier.get(source).copied().unwrap_or(0);
        }
        best
    }

    /// Notes where the last pair of `tokens` ends.
    fn index(&mut self, tokens: &[u32]) {
        let bucket = self.bucket(tokens);
        let latest = bucket.and_then(|bucket| self.latest.get_mut(bucket));
        let count = u32::try_from(tokens.len()).unwrap_or(0);
        let before = latest.map_or(0, |latest| std::mem::replace(latest, count));
        self.earlier.push(before);
    }

    fn bucket(&self, tokens: &[u32]) -> Option<usize> {
        let [.., left, right] = tokens else {
            return None;
        };
        // Odd constants of good spread; the upper half of the product is the hash.
        let mixed = u64::from(*left).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(*right);
        let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let mask = self.latest.len() - 1;
        Some(usize::try_from(mixed).unwrap_or(0) & mask)
    }
}

/// Lengths of matches that are told apart, by their least.
const LENGTHS: [usize; 8] = [0, 1, 2, 3, 4, 6, 10, 18];
/// How often a guess after such a match is right, until this sequence tells.
const PRIOR: [f32; 8] = [0.3, 0.5, 0.25, 0.4, 0.55, 0.7, 0.85, 0.92];
/// Guesses that the prior counts for, and after which old ones are forgotten.
const WEIGHT_MIN: f32 = 4.0;
const WEIGHT_MAX: f32 = 40.0;

/// How often guesses are right.
#[derive(Clone, Debug)]
struct Rates {
    /// By `LENGTHS`: rate, and how many guesses it stands on.
    rates: [(f32, f32); LENGTHS.len()],
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            rates: PRIOR.map(|prior| (prior, WEIGHT_MIN)),
        }
    }
}

impl Rates {
    fn index(length: usize) -> usize {
        let above = LENGTHS.partition_point(|least| *least <= length);
        above.saturating_sub(1)
    }

    fn of(&self, length: usize) -> f32 {
        let rate = self.rates.get(Self::index(length));
        rate.map_or(0.0, |(rate, _)| *rate)
    }

    fn learn(&mut self, length: usize, is_right: bool) {
        if let Some((rate, weight)) = self.rates.get_mut(Self::index(length)) {
            *weight = (*weight + 1.0).min(WEIGHT_MAX);
            let outcome = if is_right { 1.0 } else { 0.0 };
            *rate += (outcome - *rate) / *weight;
        }
    }
}

#[cfg(test)]
mod tests;
