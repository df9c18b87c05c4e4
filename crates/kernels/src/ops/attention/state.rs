//! What a query knows after some of its keys, and how two such states become one.

use crate::ops::math;
use crate::simd::{LANES, Simd};

/// Below every score, yet finite: `exp(LOWEST - m)` is 0 and `LOWEST - LOWEST` is 0.
const LOWEST: f32 = -1e30;

/// Running maximum of a query's scores, and sum of its weights under that maximum. The
/// weighted sum of values is kept apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    pub(super) max: f32,
    pub(super) sum: f32,
}

impl Softmax {
    /// No key yet.
    pub(super) const FRESH: Self = Self {
        max: LOWEST,
        sum: 0.0,
    };
}

/// Adds the state of a segment to that of the segments before it.
#[inline(always)]
pub(super) fn merge<S: Simd>(
    simd: S,
    (total, total_sums): (&mut Softmax, &mut [f32]),
    (segment, segment_sums): (Softmax, &[f32]),
) {
    if segment.sum == 0.0 {
        return;
    }
    if total.sum == 0.0 {
        *total = segment;
        total_sums.copy_from_slice(segment_sums);
        return;
    }
    let max = if segment.max > total.max {
        segment.max
    } else {
        total.max
    };
    let old = math::exp_one(simd, total.max - max);
    let new = math::exp_one(simd, segment.max - max);
    *total = Softmax {
        max,
        sum: total.sum * old + segment.sum * new,
    };
    let (old, new) = (simd.splat(old), simd.splat(new));
    let segment_sums = segment_sums.as_chunks::<LANES>().0;
    for (total, segment) in total_sums.as_chunks_mut().0.iter_mut().zip(segment_sums) {
        let sum = simd.add(
            simd.mul(simd.load(total), old),
            simd.mul(simd.load(segment), new),
        );
        simd.store(sum, total);
    }
}
