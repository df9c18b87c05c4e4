//! Products with quantized weights.
//!
//! A group of weights is unpacked once and multiplied with all rows, a few at a time: exact
//! integer sums of these rows, in registers, then a step of their float chains.

use super::{ROWS_MAX, Unit};
use crate::activations::Block;
use crate::simd::Simd;
use crate::tiles::decode::{CodeWidth, Decode, Group};

/// Weights of one row of activations that are asked for and not there yet: 21 lines. A core keeps
/// track of about so many misses (22 on Zen 2), and requests further ahead only wait for each
/// other.
const IN_FLIGHT_BYTES: usize = 21 * 64;

/// How far ahead weights are asked for where arithmetic takes longer than their way.
const AHEAD_BYTES: usize = 4 << 10;

/// Computes one unit.
#[inline(always)]
pub(super) fn run<D: Decode, S: Simd>(simd: S, unit: &Unit<'_>) {
    match unit.rows.len() {
        1 => few::<D, S, 1>(simd, unit),
        2 => few::<D, S, 2>(simd, unit),
        3 => few::<D, S, 3>(simd, unit),
        4 => few::<D, S, 4>(simd, unit),
        _ => many::<D, S>(simd, unit),
    }
}

/// Strips for `M` rows.
#[inline(always)]
fn few<D: Decode, S: Simd, const M: usize>(simd: S, unit: &Unit<'_>) {
    let first = unit.rows.start;
    for strip in unit.strips.clone() {
        let mut acc = [simd.splat(0.0); M];
        pass::<D, S, M>(simd, unit, strip, first, &mut acc);
        for (index, acc) in acc.into_iter().enumerate() {
            unit.output.store(simd, first + index, strip, acc);
        }
    }
}

/// Any number of rows, with the accumulators of up to [`ROWS_MAX`] in the L1 cache.
#[inline(always)]
fn many<D: Decode, S: Simd>(simd: S, unit: &Unit<'_>) {
    let mut acc = [simd.splat(0.0); ROWS_MAX];
    let mut first = unit.rows.start;
    while first < unit.rows.end {
        let count = ROWS_MAX.min(unit.rows.end - first);
        let acc = &mut acc[..count];
        for strip in unit.strips.clone() {
            acc.fill(simd.splat(0.0));
            pass::<D, S, 0>(simd, unit, strip, first, acc);
            for (index, acc) in acc.iter().enumerate() {
                unit.output.store(simd, first + index, strip, *acc);
            }
        }
        first += count;
    }
}

/// One strip for the rows from `first` on, one for each of `acc`: `M`, unless `M` is 0.
#[inline(always)]
fn pass<D: Decode, S: Simd, const M: usize>(
    simd: S,
    unit: &Unit<'_>,
    strip: usize,
    first: usize,
    acc: &mut [S::F],
) {
    let count = if M == 0 { acc.len() } else { M };
    let stream = unit.stream(strip);
    let mut activations = unit.activations.blocks();
    for start in (0..unit.tiles.strip_bytes()).step_by(D::BLOCK_BYTES) {
        let block = D::block(simd, &stream[start..][..D::BLOCK_BYTES]);
        for (index, rows) in (0..D::GROUPS).zip(&mut activations) {
            prefetch::<D, S, M>(simd, stream, start, index);
            let group = D::group(simd, &block, index);
            let (rows, acc) = (&rows[first..][..count], &mut acc[..count]);
            if M > 0 {
                if let (Some(rows), Some(acc)) = (rows.first_chunk(), acc.first_chunk_mut()) {
                    add::<D, S, M>(simd, &group, rows, acc);
                }
                continue;
            }
            match D::Width::rows::<S>() {
                8 => add_rows::<D, S, 8>(simd, &group, rows, acc),
                4 => add_rows::<D, S, 4>(simd, &group, rows, acc),
                _ => add_rows::<D, S, 1>(simd, &group, rows, acc),
            }
        }
    }
}

/// Asks for the lines of a later group than `index` of the block at `stream[start..]`.
#[inline(always)]
fn prefetch<D: Decode, S: Simd, const M: usize>(
    simd: S,
    stream: &[u8],
    start: usize,
    index: usize,
) {
    let bytes = D::BLOCK_BYTES / D::GROUPS;
    let ahead = if M == 1 {
        // Before the first group of a block its scales are read.
        const { D::SCALE_BYTES + IN_FLIGHT_BYTES - D::BLOCK_BYTES / D::GROUPS }
    } else {
        AHEAD_BYTES
    };
    let first = start + index * bytes + ahead;
    for line in 0..bytes.div_ceil(64) {
        simd.prefetch(stream, first + line * 64);
    }
}

/// The canonical chain of one group, for every row, `R` at a time, then 4, 2 and 1.
#[inline(always)]
fn add_rows<D: Decode, S: Simd, const R: usize>(
    simd: S,
    group: &Group<S>,
    rows: &[Block],
    acc: &mut [S::F],
) {
    let (rows, acc) = add_chunks::<D, S, R>(simd, group, rows, acc);
    if R == 1 {
        return;
    }
    let (rows, acc) = add_chunks::<D, S, 4>(simd, group, rows, acc);
    let (rows, acc) = add_chunks::<D, S, 2>(simd, group, rows, acc);
    add_chunks::<D, S, 1>(simd, group, rows, acc);
}

/// As many times `R` rows as there are; returns the others.
#[inline(always)]
fn add_chunks<'a, D: Decode, S: Simd, const R: usize>(
    simd: S,
    group: &Group<S>,
    rows: &'a [Block],
    acc: &'a mut [S::F],
) -> (&'a [Block], &'a mut [S::F]) {
    let (chunks, rows) = rows.as_chunks();
    let (acc_chunks, acc) = acc.as_chunks_mut();
    for (rows, acc) in chunks.iter().zip(acc_chunks) {
        add::<D, S, R>(simd, group, rows, acc);
    }
    (rows, acc)
}

/// The canonical chain of one group, for `R` rows.
#[inline(always)]
fn add<D: Decode, S: Simd, const R: usize>(
    simd: S,
    group: &Group<S>,
    rows: &[Block; R],
    acc: &mut [S::F; R],
) {
    if D::HALVES {
        add_half::<D, S, R, 0>(simd, group, rows, acc);
        add_half::<D, S, R, 1>(simd, group, rows, acc);
        return;
    }
    let operands = rows.each_ref().map(Block::whole);
    let sums = D::Width::dot::<S, 8, R>(simd, &group.codes, operands, D::CENTRED);
    for ((acc, sum), row) in acc.iter_mut().zip(sums).zip(rows) {
        let scale = simd.mul(group.scales.d[0], simd.splat(row.scale));
        let mut chain = simd.fma(simd.int_to_float(sum), scale, *acc);
        if D::HAS_MIN {
            chain = simd.fma(group.scales.m, simd.splat(row.scaled_sum), chain);
        }
        *acc = chain;
    }
}

/// The canonical chain of half a group with a scale of its own, for `R` rows.
#[inline(always)]
fn add_half<D: Decode, S: Simd, const R: usize, const HALF: usize>(
    simd: S,
    group: &Group<S>,
    rows: &[Block; R],
    acc: &mut [S::F; R],
) {
    let codes = &group.codes.as_chunks().0[HALF];
    let operands = rows.each_ref().map(|row| row.halves()[HALF]);
    let sums = D::Width::dot::<S, 4, R>(simd, codes, operands, D::CENTRED);
    for ((acc, sum), row) in acc.iter_mut().zip(sums).zip(rows) {
        let scale = simd.mul(group.scales.d[HALF], simd.splat(row.scale));
        *acc = simd.fma(simd.int_to_float(sum), scale, *acc);
    }
}
