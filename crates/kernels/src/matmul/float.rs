//! Products with float weights: 16 outputs per vector, one fused multiply-add per column.

use super::Unit;
use crate::simd::{LANES, Simd};
use crate::tiles::decode::{load_bf16, load_f16, load_f32};

/// A float format: how one column of a strip becomes a vector.
pub(crate) trait Element {
    /// Bytes of an element.
    const BYTES: usize;

    /// The 16 weights at the front of `column`.
    fn load<S: Simd>(simd: S, column: &[u8]) -> S::F;
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl Element for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    fn load<S: Simd>(simd: S, column: &[u8]) -> S::F {
        load_f32(simd, column, 0)
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(simd: S, column: &[u8]) -> S::F {
        load_f16(simd, column, 0)
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(simd: S, column: &[u8]) -> S::F {
        load_bf16(simd, column, 0)
    }
}

/// Rows whose accumulators stay in registers: 6 x 2 of AVX2's 16 registers.
const ROWS: usize = 6;

/// Computes one unit.
#[inline(always)]
pub(super) fn run<E: Element, S: Simd>(simd: S, unit: &Unit<'_>, _element: &E) {
    for strip in unit.strips.clone() {
        let mut first = unit.rows.start;
        while first < unit.rows.end {
            let count = ROWS.min(unit.rows.end - first);
            match count {
                1 => pass::<E, S, 1>(simd, unit, strip, first),
                2 => pass::<E, S, 2>(simd, unit, strip, first),
                3 => pass::<E, S, 3>(simd, unit, strip, first),
                4 => pass::<E, S, 4>(simd, unit, strip, first),
                5 => pass::<E, S, 5>(simd, unit, strip, first),
                _ => pass::<E, S, ROWS>(simd, unit, strip, first),
            }
            first += count;
        }
    }
}

/// One strip for rows `first..first + M`.
#[inline(always)]
fn pass<E: Element, S: Simd, const M: usize>(simd: S, unit: &Unit<'_>, strip: usize, first: usize) {
    let (cols, strip_bytes) = (unit.tiles.cols(), unit.tiles.strip_bytes());
    let weights = &unit.tiles.bytes()[strip * strip_bytes..][..strip_bytes];
    let values = unit.activations.values();
    let rows: [&[f32]; M] = std::array::from_fn(|m| &values[(first + m) * cols..][..cols]);
    let mut acc = [simd.splat(0.0); M];
    for (k, column) in weights.chunks_exact(E::BYTES * LANES).enumerate() {
        let weight = E::load(simd, column);
        for (acc, row) in acc.iter_mut().zip(rows) {
            *acc = simd.fma(weight, simd.splat(row[k]), *acc);
        }
    }
    for (index, acc) in acc.into_iter().enumerate() {
        unit.output.store(simd, first + index, strip, acc);
    }
}
