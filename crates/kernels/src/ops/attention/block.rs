//! A block of 64 keys against a few queries: the loops that take the time.

use std::ops::Range;

use super::state::Softmax;
use crate::ops::kv::PAGE_TOKENS;
use crate::ops::math;
use crate::simd::{LANES, Simd};

/// Vectors that hold a block's scores.
pub(super) const BLOCK_VECTORS: usize = PAGE_TOKENS / LANES;
/// Queries that share loads: with two registers a vector, 12 sums leave room for the rest.
pub(super) const GROUP_MAX: usize = 6;

/// Scores of a group's queries, then their weights.
pub(super) type Weights = [[f32; PAGE_TOKENS]; GROUP_MAX];

/// What a block's keys or values are made of.
pub(super) trait Element {
    type Stored: Copy;
    /// Vectors between requests for what is read next; 0 if it lies in no page.
    const VECTORS_AHEAD: usize;
    fn load<S: Simd>(simd: S, lanes: &[Self::Stored; LANES]) -> S::F;
}

/// As pages hold it.
pub(super) trait Paged: Element {
    fn view(bytes: &[u8]) -> &[Self::Stored];
}

/// Vectors of elements in a cache line.
const fn vectors_per_line<T>() -> usize {
    64 / (LANES * size_of::<T>())
}

/// `KvType::F16`
pub(super) struct Half;

/// `KvType::Bf16`
pub(super) struct Brain;

/// `KvType::Q8_0`, without its scale
pub(super) struct Code;

/// Widened beforehand.
pub(super) struct Single;

impl Element for Half {
    type Stored = [u8; 2];
    const VECTORS_AHEAD: usize = vectors_per_line::<[u8; 2]>();
    #[inline(always)]
    fn load<S: Simd>(simd: S, lanes: &[[u8; 2]; LANES]) -> S::F {
        simd.load_f16(&lanes.map(u16::from_le_bytes))
    }
}

impl Paged for Half {
    #[inline(always)]
    fn view(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }
}

impl Element for Brain {
    type Stored = [u8; 2];
    const VECTORS_AHEAD: usize = vectors_per_line::<[u8; 2]>();
    #[inline(always)]
    fn load<S: Simd>(simd: S, lanes: &[[u8; 2]; LANES]) -> S::F {
        simd.load_bf16(&lanes.map(u16::from_le_bytes))
    }
}

impl Paged for Brain {
    #[inline(always)]
    fn view(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }
}

impl Element for Code {
    type Stored = u8;
    const VECTORS_AHEAD: usize = vectors_per_line::<u8>();
    #[inline(always)]
    fn load<S: Simd>(simd: S, lanes: &[u8; LANES]) -> S::F {
        simd.int_to_float(simd.load_signed_bytes(&lanes.map(u8::cast_signed)))
    }
}

impl Paged for Code {
    #[inline(always)]
    fn view(bytes: &[u8]) -> &[u8] {
        bytes
    }
}

impl Element for Single {
    type Stored = f32;
    const VECTORS_AHEAD: usize = 0;
    #[inline(always)]
    fn load<S: Simd>(simd: S, lanes: &[f32; LANES]) -> S::F {
        simd.load(lanes)
    }
}

/// `count` rows of vectors: vector `v` of row `k` begins at `k * row + v * vector`.
pub(super) struct Rows<'a, E: Element> {
    pub(super) elements: &'a [E::Stored],
    pub(super) count: usize,
    pub(super) row: usize,
    pub(super) vector: usize,
    /// As many bytes as `elements` has that are read after these.
    pub(super) ahead: &'a [u8],
}

impl<E: Element> Rows<'_, E> {
    /// Checks once what [`Self::lanes`] relies on: `vectors` vectors lie within `elements`.
    #[inline(always)]
    fn check(&self, vectors: usize) {
        let last = (self.count - 1) * self.row + (vectors - 1) * self.vector;
        assert!(last + LANES <= self.elements.len(), "rows of a block");
    }

    /// Vector `vector` of row `k`.
    ///
    /// # Safety
    /// `k` is below `count`, and `check` has seen `vector`.
    #[inline(always)]
    unsafe fn lanes(&self, k: usize, vector: usize) -> &[E::Stored; LANES] {
        let start = k * self.row + vector * self.vector;
        let lanes = self.elements.as_ptr().wrapping_add(start).cast();
        // SAFETY: `start` is no later than the one that `check` has computed, from which
        // `LANES` elements lie within `elements`.
        unsafe { &*lanes }
    }
}

/// What rows are multiplied by, for each of `N` queries.
trait Coefficients<const N: usize>: Copy {
    fn at(self, k: usize, n: usize) -> f32;
}

/// Queries, interleaved.
impl<const N: usize> Coefficients<N> for &[[f32; N]] {
    #[inline(always)]
    fn at(self, k: usize, n: usize) -> f32 {
        self[k][n]
    }
}

/// Weights of a block.
impl<const N: usize> Coefficients<N> for &Weights {
    #[inline(always)]
    fn at(self, k: usize, n: usize) -> f32 {
        self[n][k]
    }
}

/// `sums[n][v] += coefficients[k][n] * rows[k][vector + v]` for the `k` in `range`, ascending.
#[inline(always)]
fn accumulate<S: Simd, E: Element, const N: usize, const V: usize>(
    simd: S,
    sums: &mut [[S::F; V]; N],
    coefficients: impl Coefficients<N>,
    rows: &Rows<'_, E>,
    (range, vector): (Range<usize>, usize),
) {
    rows.check(vector + V);
    for k in range.start..range.end.min(rows.count) {
        if E::VECTORS_AHEAD > 0 {
            for line in (0..V).step_by(E::VECTORS_AHEAD) {
                let done = (vector * rows.count + k * V + line) * LANES;
                simd.prefetch(rows.ahead, done * size_of::<E::Stored>());
            }
        }
        for v in 0..V {
            // SAFETY: `k` is below `count`; the vector was checked.
            let lanes = E::load(simd, unsafe { rows.lanes(k, vector + v) });
            for (n, sums) in sums.iter_mut().enumerate() {
                sums[v] = simd.fma(simd.splat(coefficients.at(k, n)), lanes, sums[v]);
            }
        }
    }
}

/// Scores of the keys of `vectors`, `V` vectors at a time, for `N` interleaved queries. Those
/// of keys that a query does not see are rubbish.
#[inline(always)]
pub(super) fn score<S: Simd, E: Element, const N: usize, const V: usize>(
    simd: S,
    queries: &[f32],
    keys: &Rows<'_, E>,
    vectors: Range<usize>,
    weights: &mut Weights,
) {
    let queries = queries.as_chunks::<N>().0;
    let queries = &queries[..keys.count];
    let mut vector = vectors.start / V * V;
    while vector < vectors.end {
        let mut sums = [[simd.splat(0.0); V]; N];
        accumulate(simd, &mut sums, queries, keys, (0..keys.count, vector));
        for (weights, sums) in weights.iter_mut().zip(sums) {
            let targets = weights.as_chunks_mut::<LANES>().0[vector..].iter_mut();
            for (target, sum) in targets.zip(sums) {
                simd.store(sum, target);
            }
        }
        vector += V;
    }
}

/// `sums += weights * values` for `N` queries and the slots that all of them see, ascending.
#[inline(always)]
pub(super) fn add<S: Simd, E: Element, const N: usize, const V: usize>(
    simd: S,
    weights: &Weights,
    values: &Rows<'_, E>,
    slots: &Range<usize>,
    sums: &mut [f32],
) {
    let vectors = sums.len() / N / LANES;
    let mut vector = 0;
    while vector + V <= vectors {
        add_vectors::<S, E, N, V>(simd, weights, values, (slots, vector), sums);
        vector += V;
    }
    while V > 1 && vector < vectors {
        add_vectors::<S, E, N, 1>(simd, weights, values, (slots, vector), sums);
        vector += 1;
    }
}

/// [`add`] for `V` vectors of every query.
#[inline(always)]
fn add_vectors<S: Simd, E: Element, const N: usize, const V: usize>(
    simd: S,
    weights: &Weights,
    values: &Rows<'_, E>,
    (slots, vector): (&Range<usize>, usize),
    sums: &mut [f32],
) {
    let size = sums.len() / N;
    let mut wide = [[simd.splat(0.0); V]; N];
    for (wide, sums) in wide.iter_mut().zip(sums.chunks_exact(size)) {
        let lanes = sums.as_chunks::<LANES>().0[vector..].iter();
        for (wide, lanes) in wide.iter_mut().zip(lanes) {
            *wide = simd.load(lanes);
        }
    }
    let range = slots.start..slots.end.min(PAGE_TOKENS);
    accumulate(simd, &mut wide, weights, values, (range, vector));
    for (wide, sums) in wide.iter().zip(sums.chunks_exact_mut(size)) {
        let lanes = sums.as_chunks_mut::<LANES>().0[vector..].iter_mut();
        for (wide, lanes) in wide.iter().zip(lanes) {
            simd.store(*wide, lanes);
        }
    }
}

#[inline(always)]
pub(super) fn cap_scores<S: Simd>(simd: S, scores: &mut [f32; PAGE_TOKENS], cap: f32) {
    let wide = simd.splat(cap);
    for lanes in scores.as_chunks_mut::<LANES>().0 {
        let bent = math::tanh(simd, simd.div(simd.load(lanes), wide));
        simd.store(simd.mul(bent, wide), lanes);
    }
}

/// Turns the scores of the slots that each query sees into weights, those of the others into
/// 0, and brings the running maxima and sums up to date. Returns the factors for what was
/// summed under the old maxima.
#[inline(always)]
pub(super) fn weigh<S: Simd>(
    simd: S,
    weights: &mut Weights,
    states: &mut [Softmax],
    slots: &[Range<usize>],
) -> [f32; GROUP_MAX] {
    let mut scales = [1.0; GROUP_MAX];
    // Maxima first: the exponentials of all queries then wait for nothing.
    let rows = weights.iter_mut().zip(slots);
    for ((scores, slots), (state, scale)) in rows.zip(states.iter_mut().zip(&mut scales)) {
        if slots.len() < PAGE_TOKENS {
            scores[..slots.start].fill(f32::NEG_INFINITY);
            scores[slots.end..].fill(f32::NEG_INFINITY);
        }
        let mut wide = simd.splat(state.max);
        for lanes in scores.as_chunks::<LANES>().0 {
            wide = simd.max(simd.load(lanes), wide);
        }
        let max = simd.fold_max(wide);
        // The exponential is exactly 1 at 0.
        if state.max != max {
            *scale = math::exp_one(simd, state.max - max);
        }
        state.max = max;
    }
    let rows = weights.iter_mut().zip(&scales);
    for ((scores, scale), state) in rows.zip(states) {
        let max = simd.splat(state.max);
        let mut sum = simd.splat(0.0);
        for lanes in scores.as_chunks_mut::<LANES>().0 {
            let weights = math::exp_of_negative(simd, simd.sub(simd.load(lanes), max));
            sum = simd.add(sum, weights);
            simd.store(weights, lanes);
        }
        state.sum = state.sum * scale + simd.fold_sum(sum);
    }
    scales
}

/// Adds the values of `slots` to one query.
#[inline(always)]
pub(super) fn add_alone<S: Simd, E: Element>(
    simd: S,
    weights: &[f32; PAGE_TOKENS],
    values: &Rows<'_, E>,
    slots: Range<usize>,
    sums: &mut [f32],
) {
    values.check(sums.len() / LANES);
    let weights = weights.iter().enumerate().take(slots.end.min(values.count));
    for (slot, weight) in weights.skip(slots.start) {
        let weight = simd.splat(*weight);
        for (vector, sums) in sums.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            // SAFETY: `slot` is below `count`; the vectors were checked.
            let lanes = E::load(simd, unsafe { values.lanes(slot, vector) });
            let sum = simd.fma(weight, lanes, simd.load(sums));
            simd.store(sum, sums);
        }
    }
}

/// Multiplies scores, or weights, by the scales of their keys, or values.
#[inline(always)]
pub(super) fn scale<S: Simd>(
    simd: S,
    weights: &mut [[f32; PAGE_TOKENS]],
    scales: &[f32; PAGE_TOKENS],
) {
    let scales = scales.as_chunks::<LANES>().0;
    for weights in weights {
        for (lanes, scales) in weights.as_chunks_mut::<LANES>().0.iter_mut().zip(scales) {
            simd.store(simd.mul(simd.load(lanes), simd.load(scales)), lanes);
        }
    }
}
