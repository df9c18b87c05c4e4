//! The input of a matrix product: rows of f32, and the same rows quantized.
//!
//! ```text
//! blocks[b * rows + m] = columns 32 b .. 32 b + 32 of row m
//! ```
//!
//! All rows' blocks of the same columns lie together: a kernel that has unpacked a group of
//! weights multiplies it with all of them. [`crate::reference::quantize_activation`] says what
//! a block is.

#![expect(
    unsafe_code,
    reason = "rows are quantized by several threads, and their blocks interleave"
)]

use crate::pool::Disjoint;
use crate::reference::LARGEST_MIN;
use crate::simd::{Kernel, LANES, Simd};
use crate::tiles::GROUP_COLS;
use crate::{Kernels, Pool};

/// 32 codes in -127..=127, four columns at a time.
pub(crate) type Codes = [[i8; 4]; GROUP_COLS / 4];

/// Sums of the codes of some columns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// Of all of them.
    pub(crate) total: i32,
    /// Of the first two and of the last two codes of every four.
    pub(crate) pairs: [i16; 2],
}

impl Sums {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let [first, last] = self.pairs;
        Self {
            total: self.total + other.total,
            pairs: [first + other.pairs[0], last + other.pairs[1]],
        }
    }
}

/// Consecutive codes of a row under one scale of the weights: an operand of a dot product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<'a, const N: usize> {
    pub(crate) codes: &'a [[i8; 4]; N],
    pub(crate) sums: &'a Sums,
}

/// 32 columns of a row: one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Block {
    pub(crate) codes: Codes,
    pub(crate) scale: f32,
    /// `scale * sums.total`
    pub(crate) scaled_sum: f32,
    pub(crate) sums: Sums,
    /// Of the first and the last 16 columns.
    pub(crate) half_sums: [Sums; 2],
}

impl Block {
    /// A block of `codes` without a scale.
    #[cfg(test)]
    pub(crate) fn new(codes: Codes) -> Self {
        let mut block = Self {
            codes,
            ..Self::default()
        };
        for (sums, fours) in block.half_sums.iter_mut().zip(codes.as_chunks::<4>().0) {
            let pairs = [0, 2].map(|at| {
                fours
                    .iter()
                    .map(|four| i16::from(four[at]) + i16::from(four[at + 1]))
                    .sum()
            });
            let total = pairs.iter().map(|sum: &i16| i32::from(*sum)).sum();
            *sums = Sums { total, pairs };
        }
        block.sums = block.half_sums[0].add(block.half_sums[1]);
        block
    }

    /// All 32 columns.
    #[inline(always)]
    pub(crate) fn whole(&self) -> Operand<'_, 8> {
        Operand {
            codes: &self.codes,
            sums: &self.sums,
        }
    }

    /// The first and the last 16 columns.
    #[inline(always)]
    pub(crate) fn halves(&self) -> [Operand<'_, 4>; 2] {
        let [first, last] = &self.half_sums;
        let codes = self.codes.as_chunks().0;
        [
            Operand {
                codes: &codes[0],
                sums: first,
            },
            Operand {
                codes: &codes[1],
                sums: last,
            },
        ]
    }
}

/// Below this many values quantizing is not worth a second thread.
const PARALLEL_VALUES_MIN: usize = 16 << 10;

/// Rows of activations, a buffer that is used again and again.
#[derive(Debug, Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    /// (rows, cols)
    values: Vec<f32>,
    /// (ceil(cols / 32), rows)
    blocks: Vec<Block>,
    /// Whether `blocks` belong to `values`.
    quantized: bool,
}

impl Activations {
    /// An empty matrix.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this a matrix of `rows` x `cols`. Its values are unspecified until they are
    /// written. Memory is kept when the matrix shrinks.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        self.rows = rows;
        self.cols = cols;
        self.values.resize(rows * cols, 0.0);
        let blocks = rows * cols.div_ceil(GROUP_COLS);
        self.blocks.resize(blocks, Block::default());
        self.quantized = false;
    }

    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The values, (rows, cols).
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The values, (rows, cols). They must be quantized again after this, if they are to be
    /// multiplied with quantized weights.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.quantized = false;
        &mut self.values
    }

    /// The blocks of all rows, for each 32 columns.
    ///
    /// # Panics
    /// If the values were not quantized since they were written.
    pub(crate) fn blocks(&self) -> std::slice::ChunksExact<'_, Block> {
        assert!(
            self.quantized,
            "activations are quantized before they are multiplied"
        );
        self.blocks.chunks_exact(self.rows.max(1))
    }
}

/// Quantizes 32 values.
#[inline(always)]
fn quantize_block<S: Simd>(simd: S, values: &[f32; GROUP_COLS]) -> Block {
    let mut block = Block::default();
    let [first, last] = *values.as_chunks::<LANES>().0 else {
        return block;
    };
    let (first, last) = (simd.load(&first), simd.load(&last));
    let Some(largest) = largest(simd, first, last) else {
        block.scale = f32::NAN;
        block.scaled_sum = f32::NAN;
        return block;
    };
    if largest < LARGEST_MIN {
        return block;
    }
    let factor = simd.splat(127.0 / largest);
    let (halves, _) = block.codes.as_chunks_mut::<{ LANES / 4 }>();
    for (index, (half, values)) in halves.iter_mut().zip([first, last]).enumerate() {
        let scaled = simd.mul(values, factor);
        let clamped = simd.max(simd.min(scaled, simd.splat(127.0)), simd.splat(-127.0));
        let mut integers = [0; LANES];
        simd.store_int(simd.round_to_int(clamped), &mut integers);
        let fours = integers.as_chunks::<4>().0;
        let first: i32 = fours.iter().map(|four| four[0] + four[1]).sum();
        let last: i32 = fours.iter().map(|four| four[2] + four[3]).sum();
        block.half_sums[index] = Sums {
            total: first + last,
            pairs: [first as i16, last as i16],
        };
        half.as_flattened_mut()
            .copy_from_slice(&integers.map(|code| code as i8));
    }
    block.scale = largest / 127.0;
    block.sums = block.half_sums[0].add(block.half_sums[1]);
    block.scaled_sum = block.scale * block.sums.total as f32;
    block
}

/// The largest magnitude of 32 values; `None` if one of them is not finite.
#[inline(always)]
fn largest<S: Simd>(simd: S, first: S::F, last: S::F) -> Option<f32> {
    // A product with zero is NaN for exactly the values that are not finite.
    let zero = simd.splat(0.0);
    let marks = simd.fma(first, zero, simd.mul(last, zero));
    let mut lanes = [0.0; LANES];
    simd.store(marks, &mut lanes);
    if lanes.iter().any(|mark| mark.is_nan()) {
        return None;
    }
    simd.store(simd.max(simd.abs(first), simd.abs(last)), &mut lanes);
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            let other = lanes[lane + width];
            lanes[lane] = if lanes[lane] > other {
                lanes[lane]
            } else {
                other
            };
        }
        width /= 2;
    }
    Some(lanes[0])
}

/// Quantizes one row.
struct QuantizeRow<'a> {
    /// (cols)
    values: &'a [f32],
    row: usize,
    rows: usize,
    blocks: &'a Disjoint<'a, Block>,
}

impl Kernel for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (whole, rest) = self.values.as_chunks();
        for (index, values) in whole.iter().enumerate() {
            self.put(index, quantize_block(simd, values));
        }
        if !rest.is_empty() {
            let mut padded = [0.0; GROUP_COLS];
            padded[..rest.len()].copy_from_slice(rest);
            self.put(whole.len(), quantize_block(simd, &padded));
        }
    }
}

impl QuantizeRow<'_> {
    #[inline(always)]
    fn put(&self, index: usize, block: Block) {
        let at = index * self.rows + self.row;
        // SAFETY: only this row's task writes blocks whose place is `row` modulo `rows`.
        let target = unsafe { self.blocks.slice(at..at + 1) };
        target[0] = block;
    }
}

impl Kernels {
    /// Quantizes the values of `activations`, for products with quantized weights.
    pub fn quantize(&self, pool: &Pool, activations: &mut Activations) {
        let (rows, cols) = (activations.rows, activations.cols);
        activations.quantized = true;
        if activations.values.is_empty() {
            return;
        }
        let values = &activations.values;
        let blocks = &Disjoint::new(&mut activations.blocks);
        let quantize = |row: usize| {
            let values = &values[row * cols..][..cols];
            self.tier.launch(QuantizeRow {
                values,
                row,
                rows,
                blocks,
            });
        };
        if values.len() < PARALLEL_VALUES_MIN {
            (0..rows).for_each(quantize);
        } else {
            pool.for_each(rows, &quantize);
        }
    }
}

#[cfg(test)]
mod tests;
