//! Products with quantized weights.
//!
//! The work of a group of weights has two phases, each a loop over the rows of activations:
//! exact integer sums, then the float chain. Apart, each loop is short enough for a core's
//! scheduler to overlap many rows (measured on Zen 2: 27 % faster than one loop).

use std::ops::Range;

use super::{ROWS_MAX, Unit};
use crate::activations::Scales;
use crate::simd::Simd;
use crate::tiles::decode::{self, CodeWidth, Decode};

/// How far ahead of its use the weight stream is asked for.
const PREFETCH_BYTES: usize = 4 << 10;

/// Computes one unit.
#[inline(always)]
pub(super) fn run<D: Decode, S: Simd>(simd: S, unit: &Unit<'_>) {
    if unit.rows.len() == 1 {
        let mut scratch = Scratch::<S, 1>::new(simd);
        for strip in unit.strips.clone() {
            pass::<D, S, 1>(simd, &mut scratch, unit, strip, unit.rows.clone());
        }
        return;
    }
    let mut scratch = Scratch::<S, ROWS_MAX>::new(simd);
    let mut first = unit.rows.start;
    while first < unit.rows.end {
        let rows = first..unit.rows.end.min(first + ROWS_MAX);
        for strip in unit.strips.clone() {
            pass::<D, S, ROWS_MAX>(simd, &mut scratch, unit, strip, rows.clone());
        }
        first = rows.end;
    }
}

/// The state of up to `M` rows.
struct Scratch<S: Simd, const M: usize> {
    acc: [S::F; M],
    /// Integer sums of the current group; of its first half, if there is a scale per half.
    sums: [S::I; M],
    /// Of its last half.
    last_sums: [S::I; M],
}

impl<S: Simd, const M: usize> Scratch<S, M> {
    #[inline(always)]
    fn new(simd: S) -> Self {
        Self {
            acc: [simd.splat(0.0); M],
            sums: [simd.splat_int(0); M],
            last_sums: [simd.splat_int(0); M],
        }
    }
}

/// One strip for `rows`, at most `M`. Where both are 1, the state lives in registers.
#[inline(always)]
fn pass<D: Decode, S: Simd, const M: usize>(
    simd: S,
    scratch: &mut Scratch<S, M>,
    unit: &Unit<'_>,
    strip: usize,
    rows: Range<usize>,
) {
    let (first, count) = (rows.start, if M == 1 { 1 } else { rows.len() });
    let tiles = unit.tiles;
    let stream = &tiles.bytes()[strip * tiles.strip_bytes()..];
    let bytes = &stream[..tiles.strip_bytes()];
    let acc = &mut scratch.acc[..count];
    acc.fill(simd.splat(0.0));
    let mut activations = unit.activations.blocks();
    for (index, block) in bytes.chunks_exact(D::BLOCK_BYTES).enumerate() {
        let block = D::block(simd, block);
        for (group, (codes, scales)) in (0..D::GROUPS).zip(&mut activations) {
            let bytes = D::BLOCK_BYTES / D::GROUPS;
            let start = index * D::BLOCK_BYTES + group * bytes;
            prefetch(simd, stream, start + PREFETCH_BYTES, bytes);
            let group = D::group(simd, &block, group);
            let codes = &codes[first..][..count];
            let scales = &scales[first..][..count];
            let sums = &mut scratch.sums[..count];
            if D::HALVES {
                let last_sums = &mut scratch.last_sums[..count];
                D::Width::dot_halves(simd, &group.codes, codes, [sums, last_sums]);
                add_halves::<D, S>(simd, acc, &group.scales, scales, [sums, last_sums]);
            } else {
                D::Width::dot_rows(simd, &group.codes, codes, sums);
                add::<D, S>(simd, acc, &group.scales, scales, sums);
            }
        }
    }
    for (index, acc) in acc.iter().enumerate() {
        unit.output.store(simd, first + index, strip, *acc);
    }
}

/// Asks for the lines of `bytes` bytes at `stream[start..]`.
#[inline(always)]
fn prefetch<S: Simd>(simd: S, stream: &[u8], start: usize, bytes: usize) {
    for line in 0..bytes.div_ceil(64) {
        simd.prefetch(stream, start + line * 64);
    }
}

/// The canonical chain of one group, for every row.
#[inline(always)]
fn add<D: Decode, S: Simd>(
    simd: S,
    acc: &mut [S::F],
    weights: &decode::Scales<S>,
    activations: &[Scales],
    sums: &[S::I],
) {
    for ((acc, activations), sum) in acc.iter_mut().zip(activations).zip(sums) {
        let product = product::<D, S>(simd, *sum, activations.sum);
        let scale = simd.mul(weights.d[0], simd.splat(activations.scale));
        *acc = simd.fma(product, scale, *acc);
        if D::HAS_MIN {
            *acc = simd.fma(weights.m, simd.splat(activations.scaled_sum), *acc);
        }
    }
}

/// The canonical chain of one group with a scale per 16 columns, for every row.
#[inline(always)]
fn add_halves<D: Decode, S: Simd>(
    simd: S,
    acc: &mut [S::F],
    weights: &decode::Scales<S>,
    activations: &[Scales],
    [first, last]: [&[S::I]; 2],
) {
    let sums = first.iter().zip(last);
    for ((acc, activations), (first, last)) in acc.iter_mut().zip(activations).zip(sums) {
        let scale = simd.splat(activations.scale);
        let product_of_first = product::<D, S>(simd, *first, activations.half_sums[0]);
        let product_of_last = product::<D, S>(simd, *last, activations.half_sums[1]);
        *acc = simd.fma(product_of_first, simd.mul(weights.d[0], scale), *acc);
        *acc = simd.fma(product_of_last, simd.mul(weights.d[1], scale), *acc);
    }
}

/// `f32(sum((code - offset) * activation))`. What the dot product left of the offset is taken
/// off in f32: every number here is an integer below 2^24, so nothing is rounded.
#[inline(always)]
fn product<D: Decode, S: Simd>(simd: S, sum: S::I, activation_sum: f32) -> S::F {
    let sum = simd.int_to_float(sum);
    let rest = D::OFFSET - D::Width::offset::<S>();
    if rest == 0 {
        return sum;
    }
    simd.fma(simd.splat(-rest as f32), simd.splat(activation_sum), sum)
}
