//! Rotary position embedding (Su et al., 2021): pairs of elements of a head are turned by
//! `position * frequency`.
//!
//! Angles are a pure function of (position, pair), computed in f64 for the rows at hand: a
//! table over the whole context would cost tens of megabytes, and a recurrence over pairs
//! or positions would make a row's angle depend on how it was reached.

use super::{PARALLEL_ELEMENTS_MIN, math, rows_per_chunk};
use crate::{Kernels, Pool};

/// Which elements of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// (0, 1), (2, 3), ...
    Interleaved,
    /// (0, n/2), (1, n/2 + 1), ... where n elements are rotated (GPT-NeoX).
    Neox,
}

/// Frequencies of one rotary embedding, and cosines and sines for the rows of one batch.
#[derive(Clone, Debug)]
pub struct RopeTable {
    /// Radians per position, one per pair.
    frequencies: Vec<f64>,
    /// (rows, pairs)
    cosines: Vec<f32>,
    /// (rows, pairs)
    sines: Vec<f32>,
}

impl RopeTable {
    /// `frequency_i = scale * base^(-2i / rotated) / factors_i` for the `rotated / 2` pairs.
    ///
    /// # Panics
    /// If there are `factors` but not one for each pair.
    #[must_use]
    pub fn new(rotated: usize, base: f64, scale: f64, factors: Option<&[f32]>) -> Self {
        let pairs = rotated / 2;
        assert!(
            factors.is_none_or(|factors| factors.len() == pairs),
            "a factor for each pair"
        );
        let frequency = |pair: usize| {
            let exponent = -2.0 * pair as f64 / rotated as f64;
            let factor = factors.map_or(1.0, |factors| f64::from(factors[pair]));
            scale * math::exp_f64(exponent * math::ln(base)) / factor
        };
        let frequencies = (0..pairs).map(frequency).collect();
        Self {
            frequencies,
            cosines: Vec::new(),
            sines: Vec::new(),
        }
    }

    /// Computes the angles of a batch whose row `r` is at `positions[r]`.
    pub fn prepare(&mut self, positions: impl Iterator<Item = u32>) {
        self.cosines.clear();
        self.sines.clear();
        for position in positions {
            for frequency in &self.frequencies {
                let (sine, cosine) = math::sin_cos(f64::from(position) * frequency);
                self.cosines.push(cosine as f32);
                self.sines.push(sine as f32);
            }
        }
    }
}

/// Turns one head of `row`.
fn turn(head: &mut [f32], kind: RopeKind, cosines: &[f32], sines: &[f32]) {
    let pairs = cosines.len();
    for (pair, (cosine, sine)) in cosines.iter().zip(sines).enumerate() {
        let (first, second) = match kind {
            RopeKind::Interleaved => (2 * pair, 2 * pair + 1),
            RopeKind::Neox => (pair, pair + pairs),
        };
        let (x, y) = (head[first], head[second]);
        head[first] = x * cosine - y * sine;
        head[second] = x * sine + y * cosine;
    }
}

impl Kernels {
    /// Turns every head of `target` (rows, heads, `head_size`), whose rows are those that
    /// `table` was prepared for.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn rope(
        &self,
        pool: &Pool,
        target: &mut [f32],
        head_size: usize,
        table: &RopeTable,
        kind: RopeKind,
    ) {
        let pairs = table.frequencies.len();
        let rows = table.cosines.len() / pairs.max(1);
        if rows == 0 {
            return;
        }
        let cols = target.len() / rows;
        assert_eq!(rows * cols, target.len(), "a row for each position");
        assert_eq!(cols % head_size, 0, "whole heads");
        assert!(
            2 * pairs <= head_size,
            "no more elements turned than a head has"
        );
        let parallel = target.len() >= PARALLEL_ELEMENTS_MIN;
        let chunk_rows = if parallel { rows_per_chunk(cols) } else { rows };
        pool.for_each_chunk(target, chunk_rows * cols, &|index, chunk| {
            for (row, heads) in chunk.chunks_exact_mut(cols).enumerate() {
                let angles = (index * chunk_rows + row) * pairs;
                let cosines = &table.cosines[angles..][..pairs];
                let sines = &table.sines[angles..][..pairs];
                for head in heads.chunks_exact_mut(head_size) {
                    turn(head, kind, cosines, sines);
                }
            }
        });
    }
}
