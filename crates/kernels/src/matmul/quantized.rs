//! Products with quantized weights.

use super::{ROWS_MAX, Unit};
use crate::activations::Block;
use crate::simd::Simd;
use crate::tiles::decode::{CodeWidth, Decode, Group};

/// How far ahead of its use the weight stream is asked for.
const PREFETCH_BYTES: usize = 4 << 10;

/// Computes one unit.
#[inline(always)]
pub(super) fn run<D: Decode, S: Simd>(simd: S, unit: &Unit<'_>) {
    let mut first = unit.rows.start;
    while first < unit.rows.end {
        let count = ROWS_MAX.min(unit.rows.end - first);
        for strip in unit.strips.clone() {
            let pass = Pass { unit, strip, first };
            match count {
                1 => pass.few::<D, S, 1>(simd),
                2 => pass.few::<D, S, 2>(simd),
                3 => pass.few::<D, S, 3>(simd),
                4 => pass.few::<D, S, 4>(simd),
                _ => pass.many::<D, S>(simd, count),
            }
        }
        first += count;
    }
}

/// One strip for the rows from `first`.
struct Pass<'a> {
    unit: &'a Unit<'a>,
    strip: usize,
    first: usize,
}

impl<'a> Pass<'a> {
    /// The weights from this strip to the end of the matrix.
    #[inline(always)]
    fn stream(&self) -> &'a [u8] {
        let tiles = self.unit.tiles;
        &tiles.bytes()[self.strip * tiles.strip_bytes()..]
    }

    /// `M` rows with accumulators in registers.
    #[inline(always)]
    fn few<D: Decode, S: Simd, const M: usize>(&self, simd: S) {
        let rows = self.unit.activations.rows();
        let stream = self.stream();
        let mut acc = [simd.splat(0.0); M];
        let blocks = self.unit.activations.blocks().chunks_exact(rows);
        for (index, blocks) in blocks.enumerate() {
            let group = group::<D, S>(simd, stream, index);
            let blocks = &blocks[self.first..][..M];
            for (acc, block) in acc.iter_mut().zip(blocks) {
                *acc = add_group::<D, S>(simd, *acc, &group, block);
            }
        }
        for (index, acc) in acc.into_iter().enumerate() {
            self.unit
                .output
                .store(simd, self.first + index, self.strip, acc);
        }
    }

    /// `count` rows, at most [`ROWS_MAX`].
    #[inline(always)]
    fn many<D: Decode, S: Simd>(&self, simd: S, count: usize) {
        let rows = self.unit.activations.rows();
        let stream = self.stream();
        let mut acc = [simd.splat(0.0); ROWS_MAX];
        let blocks = self.unit.activations.blocks().chunks_exact(rows);
        for (index, blocks) in blocks.enumerate() {
            let group = group::<D, S>(simd, stream, index);
            let blocks = &blocks[self.first..][..count];
            for (acc, block) in acc.iter_mut().zip(blocks) {
                *acc = add_group::<D, S>(simd, *acc, &group, block);
            }
        }
        for (index, acc) in acc[..count].iter().enumerate() {
            self.unit
                .output
                .store(simd, self.first + index, self.strip, *acc);
        }
    }
}

/// Unpacks group `index` of the strip at the front of `stream`.
#[inline(always)]
fn group<D: Decode, S: Simd>(simd: S, stream: &[u8], index: usize) -> Group<S> {
    let start = index / D::GROUPS * D::BLOCK_BYTES;
    let bytes = D::BLOCK_BYTES / D::GROUPS;
    let ahead = start + index % D::GROUPS * bytes + PREFETCH_BYTES;
    for line in 0..bytes.div_ceil(64) {
        simd.prefetch(stream, ahead + line * 64);
    }
    D::group(simd, &stream[start..][..D::BLOCK_BYTES], index % D::GROUPS)
}

/// The canonical chain of one group.
#[inline(always)]
fn add_group<D: Decode, S: Simd>(
    simd: S,
    acc: S::F,
    group: &Group<S>,
    activations: &Block,
) -> S::F {
    let scale = simd.splat(activations.scale);
    let [first, last] = activations.sums;
    if D::HALVES {
        let ([left, right], []) = group.codes.as_chunks::<4>() else {
            return acc;
        };
        let ([near, far], []) = activations.codes.as_chunks::<4>() else {
            return acc;
        };
        let near = D::Width::dot(simd, left, near, D::OFFSET, first);
        let far = D::Width::dot(simd, right, far, D::OFFSET, last);
        let acc = add_products(simd, acc, near, simd.mul(group.scales.d[0], scale));
        return add_products(simd, acc, far, simd.mul(group.scales.d[1], scale));
    }
    let products = D::Width::dot(
        simd,
        &group.codes,
        &activations.codes,
        D::OFFSET,
        first + last,
    );
    let acc = add_products(simd, acc, products, simd.mul(group.scales.d[0], scale));
    if D::HAS_MIN {
        simd.fma(group.scales.m, simd.splat(activations.scaled_sum), acc)
    } else {
        acc
    }
}

/// `fma(f32(products), scale, acc)`
#[inline(always)]
fn add_products<S: Simd>(simd: S, acc: S::F, products: S::I, scale: S::F) -> S::F {
    simd.fma(simd.int_to_float(products), scale, acc)
}
