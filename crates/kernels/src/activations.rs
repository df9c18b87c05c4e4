//! The input of a matrix product: rows of f32, and the same rows quantized.
//!
//! ```text
//! blocks[b * rows + m] = columns 32 b .. 32 b + 32 of row m
//! ```
//!
//! All rows' blocks of the same columns lie together: a kernel that has unpacked a group of
//! weights multiplies it with all of them. `reference::quantize_activation` says what a block
//! is.

#![expect(
    unsafe_code,
    reason = "rows are quantized by several threads, and their blocks interleave"
)]

use crate::pool::Disjoint;
use crate::reference::LARGEST_MIN;
use crate::simd::{Kernel, LANES, Simd};
use crate::tiles::GROUP_COLS;
use crate::{Kernels, Pool};

/// 32 activations of one row, as the kernels read them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(16))]
pub(crate) struct Block {
    /// In -127..=127, four columns at a time.
    pub(crate) codes: [[i8; 4]; GROUP_COLS / 4],
    pub(crate) scale: f32,
    /// `scale * f32(sums[0] + sums[1])`.
    pub(crate) scaled_sum: f32,
    /// Of the first and the last 16 codes.
    pub(crate) sums: [i32; 2],
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

    pub(crate) fn blocks(&self) -> &[Block] {
        assert!(
            self.quantized,
            "activations are quantized before they are multiplied"
        );
        &self.blocks
    }
}

/// Quantizes 32 values.
#[inline(always)]
fn quantize_block<S: Simd>(simd: S, values: &[f32; GROUP_COLS]) -> Block {
    let [first, last] = *values.as_chunks::<LANES>().0 else {
        return Block::default();
    };
    let (first, last) = (simd.load(&first), simd.load(&last));
    let Some(largest) = largest(simd, first, last) else {
        return Block {
            scale: f32::NAN,
            scaled_sum: f32::NAN,
            ..Block::default()
        };
    };
    if largest < LARGEST_MIN {
        return Block::default();
    }
    let factor = simd.splat(127.0 / largest);
    let mut block = Block {
        scale: largest / 127.0,
        ..Block::default()
    };
    let (halves, _) = block.codes.as_chunks_mut::<{ LANES / 4 }>();
    for ((half, sum), values) in halves.iter_mut().zip(&mut block.sums).zip([first, last]) {
        let scaled = simd.mul(values, factor);
        let clamped = simd.max(simd.min(scaled, simd.splat(127.0)), simd.splat(-127.0));
        let mut codes = [0; LANES];
        simd.store_int(simd.round_to_int(clamped), &mut codes);
        *sum = codes.iter().sum();
        half.as_flattened_mut()
            .copy_from_slice(&codes.map(|code| code as i8));
    }
    block.scaled_sum = block.scale * (block.sums[0] + block.sums[1]) as f32;
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

/// Quantizes one row, or several blocks of it.
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
        let blocks = Disjoint::new(&mut activations.blocks);
        let quantize = |row: usize| {
            let values = &values[row * cols..][..cols];
            self.tier.launch(QuantizeRow {
                values,
                row,
                rows,
                blocks: &blocks,
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
