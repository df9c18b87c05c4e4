//! Where the time of forward passes goes, and what they read: a reading of the clock per
//! phase and layer. No result depends on it.

use std::time::Duration;

use relight_kernels::KvLayout;

use super::{Batch, Row};
use crate::spec::Spec;

/// Part of a forward pass. Norms and the rounding of activations belong to the product that
/// they feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Embed,
    /// Queries, keys and values.
    Project,
    /// Writing keys and values, and attending.
    Attention,
    /// The attention's output and its addition.
    Output,
    FeedForward,
    Head,
}

impl Phase {
    pub const COUNT: usize = 6;
}

/// Sums over forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    times: [Duration; Phase::COUNT],
    /// Of the matrices that were multiplied, once per pass.
    pub weight_bytes: u64,
    /// Of the keys and values that were attended to, once per pass and sequence.
    pub kv_bytes: u64,
}

impl Costs {
    #[must_use]
    pub fn time(&self, phase: Phase) -> Duration {
        self.times.get(phase as usize).copied().unwrap_or_default()
    }

    pub fn add(&mut self, other: &Self) {
        for (time, other) in self.times.iter_mut().zip(other.times) {
            *time = time.saturating_add(other);
        }
        self.weight_bytes = self.weight_bytes.saturating_add(other.weight_bytes);
        self.kv_bytes = self.kv_bytes.saturating_add(other.kv_bytes);
    }

    /// What `batch` must read at least.
    pub(super) fn note_reads(&mut self, spec: &Spec, layout: &KvLayout, batch: &Batch<'_>) {
        let wants_logits = batch.rows.iter().any(|row| row.logits);
        self.weight_bytes += spec.product_bytes(wants_logits);
        let last_layer = spec.layers.len().saturating_sub(1);
        for rows in batch.rows.chunk_by(|a, b| a.sequence == b.sequence) {
            let all = span(rows.iter());
            let wanted = span(rows.iter().filter(|row| row.logits));
            let layers = spec.layers.iter().zip(layout.token_bytes());
            for (index, (layer, token_bytes)) in layers.enumerate() {
                let attending = if index == last_layer { &wanted } else { &all };
                let Some((first, last)) = *attending else {
                    continue;
                };
                let window = layer.attention.window.unwrap_or(u32::MAX);
                let start = (first + 1).saturating_sub(window);
                let tokens = u64::from(last + 1 - start);
                self.kv_bytes += tokens * token_bytes as u64;
            }
        }
    }
}

/// Positions of the first and the last of `rows`.
fn span<'a>(mut rows: impl DoubleEndedIterator<Item = &'a Row>) -> Option<(u32, u32)> {
    let first = rows.next()?;
    let last = rows.next_back().unwrap_or(first);
    Some((first.position, last.position))
}

/// A clock that only goes forward, from any beginning.
pub type Clock = fn() -> Duration;

/// Attributes time to phases.
#[derive(Debug, Default)]
pub(super) struct Laps {
    clock: Option<Clock>,
    last: Duration,
    pub(super) costs: Costs,
}

impl Laps {
    pub(super) fn with(clock: Clock) -> Self {
        Self {
            clock: Some(clock),
            ..Self::default()
        }
    }

    pub(super) fn begin(&mut self) {
        if let Some(clock) = self.clock {
            self.last = clock();
        }
    }

    /// What has passed since the last call was `phase`.
    pub(super) fn end(&mut self, phase: Phase) {
        let Some(clock) = self.clock else { return };
        let now = clock();
        if let Some(time) = self.costs.times.get_mut(phase as usize) {
            *time += now.saturating_sub(self.last);
        }
        self.last = now;
    }
}
