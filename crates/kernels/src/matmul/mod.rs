//! Matrix products `out[m][n] = sum over k of weights[n][k] * activations[m][k]`.
//!
//! ```text
//! for each unit of work (some strips x some rows m), on any thread:
//!     for each block of rows:             up to 64 rows
//!         for each strip:
//!             acc[m] = 0
//!             for each group of the strip, k ascending:
//!                 unpack codes and scales, once
//!                 for each m: acc[m] = chain(acc[m], codes, scales, activations[m])
//!             out[m][strip] = acc[m]
//! ```
//!
//! The chain of an output is the one of [`crate::reference`], whatever the unit, the block of
//! rows and the instruction set: its sums are never split and never reordered.

#![expect(
    unsafe_code,
    reason = "threads write different columns of the same output rows"
)]

mod float;
mod gather;
mod quantized;

use std::ops::Range;

use crate::ops::{load_padded, store_partial};
use crate::pool::Disjoint;
use crate::simd::{Kernel, Simd};
use crate::tiles::decode;
use crate::tiles::{STRIP_ROWS, Tiles};
use crate::{Activations, Format, Kernels, Pool};

/// Rows of activations whose accumulators (64 x 16 f32 = 4 KiB) stay in the L1 cache while a
/// strip passes, with the activations of a group (64 x 64 B), those of whole rows in the L2.
const ROWS_MAX: usize = 60;

/// A unit of work has about this many bytes of weights: more than a thread needs to amortise
/// fetching the unit, less than an L2 cache, because blocks of rows pass over it again.
const UNIT_BYTES: usize = 64 << 10;

/// Units per thread that even out threads of different speed.
const UNITS_PER_THREAD: usize = 4;

/// Where a unit's results go: columns of some rows of the output.
pub(crate) struct Output<'a> {
    out: &'a Disjoint<'a, f32>,
    /// Columns of the output: rows of the weights.
    cols: usize,
    bias: Option<&'a [f32]>,
    accumulate: bool,
}

impl Output<'_> {
    /// Stores the 16 outputs of `strip` for row `m`, or as many as the matrix has.
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, m: usize, strip: usize, value: S::F) {
        let first = strip * STRIP_ROWS;
        let start = m * self.cols + first;
        let len = STRIP_ROWS.min(self.cols - first);
        // SAFETY: only the unit that owns this strip and this row takes these columns.
        let target = unsafe { self.out.slice(start..start + len) };
        let biased = self.bias.map_or(value, |bias| {
            simd.add(value, load_padded(simd, &bias[first..first + len]))
        });
        if self.accumulate {
            let sum = simd.add(load_padded(simd, target), biased);
            store_partial(simd, sum, target);
        } else {
            store_partial(simd, biased, target);
        }
    }
}

/// One of several products with the same activations, and what becomes of it:
/// `out = product + bias`, or `out += product + bias`.
#[derive(Debug)]
pub struct Product<'a> {
    pub tiles: Tiles<'a>,
    /// (rows of the weights)
    pub bias: Option<&'a [f32]>,
    /// (rows of the activations, rows of the weights)
    pub out: &'a mut [f32],
    /// Whether `out` is added to, not replaced.
    pub accumulate: bool,
}

impl<'a> Product<'a> {
    /// `out = product`
    #[must_use]
    pub fn new(tiles: Tiles<'a>, out: &'a mut [f32]) -> Self {
        Self {
            tiles,
            bias: None,
            out,
            accumulate: false,
        }
    }
}

/// A product on its way.
struct Job<'a> {
    tiles: Tiles<'a>,
    plan: Plan,
    out: Disjoint<'a, f32>,
    bias: Option<&'a [f32]>,
    accumulate: bool,
}

impl<'a> Job<'a> {
    fn new(pool: &Pool, activations: &Activations, product: Product<'a>) -> Self {
        let Product {
            tiles,
            bias,
            out,
            accumulate,
        } = product;
        let (rows, cols) = (activations.rows(), tiles.rows());
        assert_eq!(
            tiles.cols(),
            activations.cols(),
            "weights and activations fit"
        );
        assert_eq!(out.len(), rows * cols, "room for the output");
        assert!(
            bias.is_none_or(|bias| bias.len() == cols),
            "a bias for each output"
        );
        Self {
            tiles,
            plan: Plan::new(&tiles, rows, pool.threads()),
            out: Disjoint::new(out),
            bias,
            accumulate,
        }
    }

    /// Computes one unit of the plan.
    fn run(&self, kernels: &Kernels, activations: &Activations, unit: usize) {
        let (strips, rows) = self.plan.unit(unit);
        let output = Output {
            out: &self.out,
            cols: self.tiles.rows(),
            bias: self.bias,
            accumulate: self.accumulate,
        };
        kernels.tier.launch(Unit {
            tiles: &self.tiles,
            activations,
            strips,
            rows,
            output,
        });
    }
}

/// Strips and rows that one thread computes.
pub(crate) struct Unit<'a> {
    tiles: &'a Tiles<'a>,
    activations: &'a Activations,
    strips: Range<usize>,
    rows: Range<usize>,
    output: Output<'a>,
}

impl<'a> Unit<'a> {
    /// The bytes of the weights from `strip` on.
    #[inline(always)]
    fn stream(&self, strip: usize) -> &'a [u8] {
        &self.tiles.bytes()[strip * self.tiles.strip_bytes()..]
    }
}

impl Kernel for Unit<'_> {
    type Output = ();
    const HAS_DOTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.tiles.format() {
            Format::F32 => float::run(simd, &self, &float::F32),
            Format::F16 => float::run(simd, &self, &float::F16),
            Format::Bf16 => float::run(simd, &self, &float::Bf16),
            Format::Q8_0 => quantized::run::<decode::Q8_0, S>(simd, &self),
            Format::Q4_0 => quantized::run::<decode::Q4_0, S>(simd, &self),
            Format::Q4_1 => quantized::run::<decode::Q4_1, S>(simd, &self),
            Format::Q5_0 => quantized::run::<decode::Q5_0, S>(simd, &self),
            Format::Q5_1 => quantized::run::<decode::Q5_1, S>(simd, &self),
            Format::Q4K => quantized::run::<decode::Q4K, S>(simd, &self),
            Format::Q5K => quantized::run::<decode::Q5K, S>(simd, &self),
            Format::Q6K => quantized::run::<decode::Q6K, S>(simd, &self),
        }
    }
}

impl Kernels {
    /// Computes `products` of the same activations as one task: nobody waits between them.
    ///
    /// # Panics
    /// If the columns of weights and activations differ, an output or a bias does not fit, or
    /// weights are quantized and `activations` are not.
    pub fn matmul<const N: usize>(
        &self,
        pool: &Pool,
        activations: &Activations,
        products: [Product<'_>; N],
    ) {
        let jobs = products.map(|product| Job::new(pool, activations, product));
        let units = jobs.iter().map(|job| job.plan.units()).sum();
        pool.for_each(units, &|mut unit| {
            for job in &jobs {
                let units = job.plan.units();
                if unit < units {
                    return job.run(self, activations, unit);
                }
                unit -= units;
            }
        });
    }
}

/// How a product is cut into units: a grid of strips and rows.
struct Plan {
    strips: usize,
    strips_per_unit: usize,
    rows: usize,
    rows_per_unit: usize,
}

impl Plan {
    fn new(tiles: &Tiles<'_>, rows: usize, threads: usize) -> Self {
        let strips = tiles.strips();
        let wanted = threads * UNITS_PER_THREAD;
        let by_size = (UNIT_BYTES / tiles.strip_bytes().max(1)).max(1);
        let strips_per_unit = by_size.min(strips.div_ceil(wanted)).max(1);
        let columns_of_units = strips.div_ceil(strips_per_unit).max(1);
        // With too few strips for all threads, rows are shared out too.
        let row_blocks = rows.div_ceil(ROWS_MAX).max(1);
        let rows_of_units = wanted.div_ceil(columns_of_units).clamp(1, row_blocks);
        let rows_per_unit = row_blocks.div_ceil(rows_of_units) * ROWS_MAX;
        Self {
            strips,
            strips_per_unit,
            rows,
            rows_per_unit,
        }
    }

    fn units(&self) -> usize {
        if self.rows == 0 {
            return 0;
        }
        self.strips.div_ceil(self.strips_per_unit) * self.rows.div_ceil(self.rows_per_unit)
    }

    fn unit(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let across = self.strips.div_ceil(self.strips_per_unit);
        let strip = index % across * self.strips_per_unit;
        let row = index / across * self.rows_per_unit;
        (
            strip..(strip + self.strips_per_unit).min(self.strips),
            row..(row + self.rows_per_unit).min(self.rows),
        )
    }
}

#[cfg(test)]
mod tests;
