//! The input of a matrix product: rows of f32, and the same rows quantized.
//!
//! ```text
//! codes[b * rows + m], scales[b * rows + m] = columns 32 b .. 32 b + 32 of row m
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

/// What scales the products with 32 codes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Scales {
    pub(crate) scale: f32,
    /// `scale * sum`
    pub(crate) scaled_sum: f32,
    /// Of all codes. Sums of codes are small integers, so exact.
    pub(crate) sum: f32,
    /// Of the first and the last 16 codes.
    pub(crate) half_sums: [f32; 2],
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
    codes: Vec<Codes>,
    /// (ceil(cols / 32), rows)
    scales: Vec<Scales>,
    /// Whether `codes` and `scales` belong to `values`.
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
        self.codes.resize(blocks, Codes::default());
        self.scales.resize(blocks, Scales::default());
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

    /// Codes and scales of all rows, for each 32 columns.
    ///
    /// # Panics
    /// If the values were not quantized since they were written.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&[Codes], &[Scales])> {
        assert!(
            self.quantized,
            "activations are quantized before they are multiplied"
        );
        let rows = self.rows.max(1);
        self.codes
            .chunks_exact(rows)
            .zip(self.scales.chunks_exact(rows))
    }
}

/// Quantizes 32 values.
#[inline(always)]
fn quantize_block<S: Simd>(simd: S, values: &[f32; GROUP_COLS]) -> (Codes, Scales) {
    let mut codes = Codes::default();
    let mut scales = Scales::default();
    let [first, last] = *values.as_chunks::<LANES>().0 else {
        return (codes, scales);
    };
    let (first, last) = (simd.load(&first), simd.load(&last));
    let Some(largest) = largest(simd, first, last) else {
        scales.scale = f32::NAN;
        scales.scaled_sum = f32::NAN;
        return (codes, scales);
    };
    if largest < LARGEST_MIN {
        return (codes, scales);
    }
    let factor = simd.splat(127.0 / largest);
    let (halves, _) = codes.as_chunks_mut::<{ LANES / 4 }>();
    let mut sums = [0; 2];
    for ((half, sum), values) in halves.iter_mut().zip(&mut sums).zip([first, last]) {
        let scaled = simd.mul(values, factor);
        let clamped = simd.max(simd.min(scaled, simd.splat(127.0)), simd.splat(-127.0));
        let mut integers = [0; LANES];
        simd.store_int(simd.round_to_int(clamped), &mut integers);
        *sum = integers.iter().sum::<i32>();
        half.as_flattened_mut()
            .copy_from_slice(&integers.map(|code| code as i8));
    }
    scales.scale = largest / 127.0;
    scales.half_sums = sums.map(|sum| sum as f32);
    scales.sum = (sums[0] + sums[1]) as f32;
    scales.scaled_sum = scales.scale * scales.sum;
    (codes, scales)
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
    codes: &'a Disjoint<'a, Codes>,
    scales: &'a Disjoint<'a, Scales>,
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
    fn put(&self, index: usize, (codes, scales): (Codes, Scales)) {
        let at = index * self.rows + self.row;
        // SAFETY: only this row's task writes blocks whose place is `row` modulo `rows`.
        let target = unsafe { self.codes.slice(at..at + 1) };
        target[0] = codes;
        // SAFETY: as above.
        let target = unsafe { self.scales.slice(at..at + 1) };
        target[0] = scales;
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
        let codes = &Disjoint::new(&mut activations.codes);
        let scales = &Disjoint::new(&mut activations.scales);
        let quantize = |row: usize| {
            let values = &values[row * cols..][..cols];
            self.tier.launch(QuantizeRow {
                values,
                row,
                rows,
                codes,
                scales,
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
