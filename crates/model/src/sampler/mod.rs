//! The next token from a row of logits.
//!
//! Rules apply in this order: bias, repetition, frequency and presence penalties, banned
//! tokens, temperature, `top_k`, `top_p` over what `top_k` left, `min_p`. The draw is the
//! inverse of the cumulative distribution over candidates ordered by probability, then id.
//! It is a pure function of settings, history, choice and position: nothing is carried from
//! one call to the next, so a resumed sequence draws what the undisturbed one would have.

mod exponential;
mod philox;
mod ranking;

use std::collections::BTreeMap;

use exponential::{exp, ln};
pub use ranking::are_usable;
use ranking::{Candidate, Shelves, best, first_maximum, maximum};

/// How the next token is drawn. Values are finite and in the ranges given.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerSettings {
    /// 0 is greedy.
    pub temperature: f32,
    /// Candidates kept, 0 for all.
    pub top_k: u32,
    /// Mass kept, in (0, 1].
    pub top_p: f32,
    /// Least probability relative to the best candidate, in [0, 1].
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or completion.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the completion.
    pub frequency_penalty: f32,
    /// Subtracted once per token present in the completion.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens; ids outside the vocabulary do nothing.
    pub logit_bias: Vec<(u32, f32)>,
    pub seed: u64,
    /// `Some(k)`: report the chosen token's log probability and the best `k` alternatives.
    pub logprobs: Option<u8>,
}

impl Default for SamplerSettings {
    /// Greedy, nothing penalised, nothing reported.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// Why no token could be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("the logits are not finite")]
    NotFinite,
    #[error("every token is excluded")]
    NoCandidate,
}

/// A token with the natural logarithm of its probability before any rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
}

/// What was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub token: u32,
    /// The chosen token first, then the best alternatives; empty if not asked for.
    pub logprobs: Vec<TokenLogprob>,
}

/// Occurrences of a token so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    in_completion: u32,
}

/// Draws the tokens of one choice of one request.
#[derive(Clone, Debug)]
pub struct Sampler {
    settings: SamplerSettings,
    choice: u16,
    /// Tokens of prompt and completion; empty if nothing is penalised.
    seen: BTreeMap<u32, Seen>,
}

/// Candidates looked at first; more only if the draw or a rule needs them.
const RANKED_FIRST: usize = 128;
/// How many more are looked at next, and up to how many: beyond, all are laid out.
const RANKED_GROWTH: usize = 8;
const RANKED_MAX: usize = 8192;
/// Terms of a sum that are added up on their own.
const SUM_BLOCK: usize = 4096;

impl Sampler {
    #[must_use]
    pub fn new(settings: SamplerSettings, choice: u16) -> Self {
        Self {
            settings,
            choice,
            seen: BTreeMap::new(),
        }
    }

    /// Tells of the prompt, once.
    pub fn observe_prompt(&mut self, tokens: &[u32]) {
        if self.repetition_matters() {
            for &token in tokens {
                self.seen.entry(token).or_default();
            }
        }
    }

    /// Tells of the next token of the completion.
    pub fn observe(&mut self, token: u32) {
        let settings = &self.settings;
        let counts_matter = settings.frequency_penalty != 0.0 || settings.presence_penalty != 0.0;
        if counts_matter || self.repetition_matters() {
            let seen = self.seen.entry(token).or_default();
            seen.in_completion = seen.in_completion.saturating_add(1);
        }
    }

    fn repetition_matters(&self) -> bool {
        self.settings.repetition_penalty != 1.0
    }

    /// Draws the token at `position` from a row of logits, which is scratch afterwards.
    /// Negative infinity means impossible; `banned` tokens are made so.
    ///
    /// # Errors
    /// See `SampleError`.
    pub fn sample(
        &self,
        logits: &mut [f32],
        position: u64,
        banned: &[u32],
    ) -> Result<Choice, SampleError> {
        if !are_usable(logits) {
            return Err(SampleError::NotFinite);
        }
        let report = self
            .settings
            .logprobs
            .map(|count| Report::new(logits, count));
        let raw = self.apply_rules(logits, banned, report.is_some());
        let token = if self.settings.temperature == 0.0 {
            first_maximum(logits).ok_or(SampleError::NoCandidate)?
        } else {
            self.draw(logits, position)?
        };
        let logit = logit_of(logits, token);
        if logit == f32::NEG_INFINITY {
            return Err(SampleError::NoCandidate);
        }
        let raw_logit = raw.get(&token).copied().unwrap_or(logit);
        let logprobs = report.map(|report| report.finish(token, raw_logit));
        Ok(Choice {
            token,
            logprobs: logprobs.unwrap_or_default(),
        })
    }

    /// Changes the logits that a rule names. Returns what they were, if that is to be kept.
    fn apply_rules(
        &self,
        logits: &mut [f32],
        banned: &[u32],
        keep_raw: bool,
    ) -> BTreeMap<u32, f32> {
        let mut raw = BTreeMap::new();
        let mut change = |token: u32, rule: &dyn Fn(f32) -> f32| {
            if let Some(logit) = logits.get_mut(token as usize) {
                if keep_raw {
                    raw.entry(token).or_insert(*logit);
                }
                // Finite in, finite out: a sum or quotient beyond the range stops at its end.
                if *logit > f32::NEG_INFINITY {
                    *logit = rule(*logit).clamp(f32::MIN, f32::MAX);
                }
            }
        };
        for &(token, bias) in &self.settings.logit_bias {
            change(token, &|logit| logit + bias);
        }
        for (&token, &seen) in &self.seen {
            change(token, &|logit| self.penalise(logit, seen));
        }
        for &token in banned {
            // Not chosen, so what it was is not asked for.
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        raw
    }

    fn penalise(&self, logit: f32, seen: Seen) -> f32 {
        let settings = &self.settings;
        let repeated = if logit > 0.0 {
            logit / settings.repetition_penalty
        } else {
            logit * settings.repetition_penalty
        };
        if seen.in_completion == 0 {
            return repeated;
        }
        // Exact below 2^24 occurrences, which no context holds.
        let count = seen.in_completion as f32;
        repeated - settings.frequency_penalty * count - settings.presence_penalty
    }

    fn draw(&self, logits: &[f32], position: u64) -> Result<u32, SampleError> {
        let uniform = philox::uniform(self.settings.seed, self.choice, position);
        let wanted = match self.settings.top_k as usize {
            0 => RANKED_FIRST,
            count => count.clamp(RANKED_FIRST, RANKED_MAX),
        };
        let mut ranked = Ranked::new(logits, self.settings.temperature, wanted)?;
        let (kept, mass) = self.keep(&mut ranked);
        let target = uniform * mass;
        let mut sum = 0.0;
        let mut last = None;
        for rank in 0..kept {
            let Some((token, weight)) = ranked.candidate(rank) else {
                break;
            };
            if weight == 0.0 {
                break;
            }
            sum += weight;
            last = Some(token);
            if sum > target {
                break;
            }
        }
        last.ok_or(SampleError::NoCandidate)
    }

    /// How many of the ranked candidates the rules keep, and their mass.
    fn keep(&self, ranked: &mut Ranked<'_>) -> (usize, f64) {
        let settings = &self.settings;
        let mut kept = usize::MAX;
        let mut mass = None;
        if settings.top_k > 0 {
            kept = settings.top_k as usize;
            mass = Some(ranked.mass(kept));
        }
        if settings.top_p < 1.0 {
            let wanted = f64::from(settings.top_p) * mass.unwrap_or_else(|| ranked.total());
            let (count, sum) = ranked.until(kept, &|sum, _| sum >= wanted);
            kept = count;
            mass = Some(sum);
        }
        if settings.min_p > 0.0 {
            // The best candidate's weight is 1.
            let least = f64::from(settings.min_p);
            let (count, sum) = ranked.until(kept, &|_, next| next < least);
            kept = count;
            mass = Some(sum);
        }
        (kept, mass.unwrap_or_else(|| ranked.total()))
    }
}

fn logit_of(logits: &[f32], token: u32) -> f32 {
    logits
        .get(token as usize)
        .copied()
        .unwrap_or(f32::NEG_INFINITY)
}

/// Sum of e^((logit - maximum) / temperature), in blocks in order, sixteen lanes in a block.
fn exponential_sum(logits: &[f32], maximum: f32, temperature: f32) -> f64 {
    let mut total = 0.0;
    for block in logits.chunks(SUM_BLOCK) {
        let mut lanes = [0.0f64; 16];
        let (words, rest) = block.as_chunks::<16>();
        for word in words {
            for (lane, &logit) in lanes.iter_mut().zip(word) {
                *lane += f64::from(exp((logit - maximum) / temperature));
            }
        }
        for (lane, &logit) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(exp((logit - maximum) / temperature));
        }
        total += lanes.iter().sum::<f64>();
    }
    total
}

/// Candidates in order of probability, ranked only as far as somebody asks.
struct Ranked<'a> {
    logits: &'a [f32],
    maximum: f32,
    temperature: f32,
    /// The first ones.
    best: Vec<Candidate>,
    /// How many those are, unless there are fewer.
    wanted: usize,
    /// All of them, once those in `best` were not enough.
    shelves: Option<Shelves>,
}

impl<'a> Ranked<'a> {
    /// `wanted` are ranked at once.
    fn new(logits: &'a [f32], temperature: f32, wanted: usize) -> Result<Self, SampleError> {
        let maximum = maximum(logits);
        if maximum == f32::NEG_INFINITY {
            return Err(SampleError::NoCandidate);
        }
        Ok(Self {
            logits,
            maximum,
            temperature,
            best: best(logits, wanted),
            wanted,
            shelves: None,
        })
    }

    /// Token and weight at `rank`, relative to the best.
    fn candidate(&mut self, rank: usize) -> Option<(u32, f64)> {
        while rank >= self.wanted && self.wanted == self.best.len() && self.wanted < RANKED_MAX {
            self.wanted = (self.wanted * RANKED_GROWTH).min(RANKED_MAX);
            self.best = best(self.logits, self.wanted);
        }
        let candidate = match self.best.get(rank) {
            Some(candidate) => *candidate,
            None if self.best.len() < self.wanted => return None,
            None => {
                let (logits, maximum) = (self.logits, self.maximum);
                let shelves = &mut self.shelves;
                let new = || Shelves::new(logits, maximum, self.temperature);
                shelves.get_or_insert_with(new).get(rank)?
            }
        };
        let weight = exp((candidate.logit - self.maximum) / self.temperature);
        Some((candidate.token, f64::from(weight)))
    }

    /// Weight of all candidates.
    fn total(&self) -> f64 {
        exponential_sum(self.logits, self.maximum, self.temperature)
    }

    /// Weight of the first `count` candidates.
    fn mass(&mut self, count: usize) -> f64 {
        self.until(count, &|_, _| false).1
    }

    /// Walks from the best candidate until `stop(mass so far, weight of the next)`, or until
    /// `count`: how many were passed and their mass. The best candidate is always passed.
    fn until(&mut self, count: usize, stop: &dyn Fn(f64, f64) -> bool) -> (usize, f64) {
        let mut sum = 0.0;
        let mut passed = 0;
        while passed < count {
            let Some((_, weight)) = self.candidate(passed) else {
                break;
            };
            if passed > 0 && (weight == 0.0 || stop(sum, weight)) {
                break;
            }
            sum += weight;
            passed += 1;
        }
        (passed, sum)
    }
}

/// Log probabilities under the distribution as the model gave it.
struct Report {
    /// Logarithm of the sum of all exponentials.
    log_sum: f64,
    alternatives: Vec<Candidate>,
}

impl Report {
    fn new(logits: &[f32], count: u8) -> Self {
        let maximum = maximum(logits);
        let sum = exponential_sum(logits, maximum, 1.0);
        Self {
            log_sum: f64::from(maximum) + ln(sum),
            alternatives: match count {
                0 => Vec::new(),
                _ => best(logits, usize::from(count)),
            },
        }
    }

    fn finish(self, token: u32, logit: f32) -> Vec<TokenLogprob> {
        let chosen = Candidate { token, logit };
        std::iter::once(chosen)
            .chain(self.alternatives)
            .map(|candidate| TokenLogprob {
                token: candidate.token,
                logprob: rounded(f64::from(candidate.logit) - self.log_sum),
            })
            .collect()
    }
}

/// The nearest `f32`; a logarithm of a probability is not positive.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to the reported precision is the purpose"
)]
fn rounded(logprob: f64) -> f32 {
    logprob.min(0.0) as f32
}

#[cfg(test)]
mod tests;
