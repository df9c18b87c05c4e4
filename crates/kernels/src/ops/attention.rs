//! Paged attention with one canonical order of operations.
//!
//! For a query at position `p` and head `h`, with keys in blocks of 64 (the pages) and
//! blocks in segments of 1024, both at absolute multiples:
//!
//! ```text
//! for each segment, ascending:                    a fresh state (m, l, o)
//!   for each block of it that has a visible key, ascending:
//!     s_j = chain over d of q_d * k_jd            visible keys only, q already scaled
//!     m'  = max(m, max_j s_j)                     exact, so in any order
//!     p_j = exp(s_j - m')
//!     l   = l * exp(m - m') + sum_j p_j           16 lanes in order, then folded
//!     o_d = o_d * exp(m - m'), then + p_j * v_jd for j ascending
//!   merge the state onto those of the segments before
//! out_d = o_d / l
//! ```
//!
//! Which keys are visible depends on the query's position alone, so the result does not
//! depend on what else is in the batch or how the prompt was cut. Queries are independent:
//! they share loads of keys and values in groups that may be chosen freely. The method is
//! the online softmax of Milakov and Gimelshein (2018) over fixed blocks.

#![expect(
    unsafe_code,
    reason = "units of work write disjoint heads of the output"
)]

use std::ops::Range;

use super::kv::{KvLayer, KvLayout, PAGE_TOKENS};
use super::{fold_sum, math};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd};
use crate::{Kernels, Pool};

/// Keys per segment.
const SEGMENT_TOKENS: usize = 1024;
/// Vectors that hold a block's scores.
const BLOCK_VECTORS: usize = PAGE_TOKENS / LANES;
/// Queries that share loads: as many accumulators as the registers hold.
const GROUP_MAX: usize = 6;
/// Rows of one sequence in one unit of work.
const TILE_ROWS: usize = 8;
/// Below every score, yet finite: `exp(LOWEST - m)` is 0 and `LOWEST - LOWEST` is 0.
const LOWEST: f32 = -1e30;

/// What a layer's attention looks like.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Query heads; a multiple of the layer's key/value heads.
    pub heads: usize,
    /// Multiplies scores.
    pub scale: f32,
    /// A query sees itself and the `window - 1` keys before it; `None`: all before it.
    pub window: Option<u32>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// One query row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionRow {
    pub position: u32,
    /// Index of the row's page table.
    pub sequence: u32,
}

impl AttentionShape {
    /// Positions that a query sees.
    pub(super) fn visible(&self, position: usize) -> Range<usize> {
        let window = self.window.map_or(usize::MAX, |window| window as usize);
        (position + 1).saturating_sub(window)..position + 1
    }
}

/// State of one query while it walks the keys of a segment.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    sum: f32,
}

const FRESH: Softmax = Softmax {
    max: LOWEST,
    sum: 0.0,
};

/// Rows of one sequence against one key/value head.
struct Unit<'a> {
    kv: &'a [u16],
    page_elements: usize,
    layer: KvLayer,
    head: usize,
    shape: AttentionShape,
    table: &'a [u32],
    /// Positions of the rows.
    positions: Vec<usize>,
    /// (queries, head_size): scaled; query = row-major (row, head of the group).
    queries: Vec<f32>,
    /// (queries, head_size)
    out: Vec<f32>,
}

/// Buffers of a unit, by query.
struct Work {
    /// State within the segment, and over the segments before it.
    local: Vec<Softmax>,
    total: Vec<Softmax>,
    /// (queries, head_size): weighted values of the segment.
    local_values: Vec<f32>,
    /// (queries, 64): scores, then weights.
    weights: Vec<[f32; PAGE_TOKENS]>,
}

impl Unit<'_> {
    fn query_count(&self) -> usize {
        self.queries.len() / self.layer.head_size
    }

    fn heads_per_row(&self) -> usize {
        self.query_count() / self.positions.len()
    }

    /// Keys and values of the head in the block that holds `position`.
    fn block(&self, block: usize) -> (&[u16], &[u16]) {
        let page = self.table[block] as usize * self.page_elements;
        let elements = self.layer.head_elements();
        let keys = &self.kv[page + self.layer.keys(self.head)..][..elements];
        let values = &self.kv[page + self.layer.values(self.head)..][..elements];
        (keys, values)
    }

    /// Visible slots of block `block` for the row of `query`.
    fn slots(&self, query: usize, block: usize) -> Range<usize> {
        let visible = self
            .shape
            .visible(self.positions[query / self.heads_per_row()]);
        let start = block * PAGE_TOKENS;
        let first = visible.start.saturating_sub(start).min(PAGE_TOKENS);
        let last = visible.end.saturating_sub(start).min(PAGE_TOKENS);
        first..last
    }
}

impl Kernel for Unit<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Vec<f32> {
        let count = self.query_count();
        let mut work = Work {
            local: vec![FRESH; count],
            total: vec![FRESH; count],
            local_values: vec![0.0; self.queries.len()],
            weights: vec![[0.0; PAGE_TOKENS]; count],
        };
        let bounds = self
            .positions
            .iter()
            .map(|position| self.shape.visible(*position));
        let (first, last) = bounds.fold((usize::MAX, 0), |(first, last), visible| {
            (first.min(visible.start), last.max(visible.end))
        });
        for segment in first / SEGMENT_TOKENS..last.div_ceil(SEGMENT_TOKENS) {
            let blocks = SEGMENT_TOKENS / PAGE_TOKENS;
            let start = (first / PAGE_TOKENS).max(segment * blocks);
            let end = last.div_ceil(PAGE_TOKENS).min((segment + 1) * blocks);
            for block in start..end {
                attend_block(simd, &self, &mut work, block);
            }
            merge_segment(simd, &mut self, &mut work);
        }
        let size = self.layer.head_size;
        for (out, state) in self.out.chunks_exact_mut(size).zip(&work.total) {
            out.iter_mut().for_each(|value| *value /= state.sum);
        }
        self.out
    }
}

/// Takes one block into the state of every query that sees any of it.
#[inline(always)]
fn attend_block<S: Simd>(simd: S, unit: &Unit<'_>, work: &mut Work, block: usize) {
    let (keys, values) = unit.block(block);
    let count = unit.query_count();
    let mut query = 0;
    while query < count {
        let slots = unit.slots(query, block);
        // Queries that see the same slots share loads: the heads of a row always do, and
        // neighbouring rows do wherever the block is wholly visible.
        let mut end = query + 1;
        while end < count && end - query < GROUP_MAX && unit.slots(end, block) == slots {
            end += 1;
        }
        if !slots.is_empty() {
            match end - query {
                1 => attend_group::<S, 1>(simd, unit, work, query, (keys, values), slots),
                2 => attend_group::<S, 2>(simd, unit, work, query, (keys, values), slots),
                3 => attend_group::<S, 3>(simd, unit, work, query, (keys, values), slots),
                4 => attend_group::<S, 4>(simd, unit, work, query, (keys, values), slots),
                5 => attend_group::<S, 5>(simd, unit, work, query, (keys, values), slots),
                _ => attend_group::<S, GROUP_MAX>(simd, unit, work, query, (keys, values), slots),
            }
        }
        query = end;
    }
}

/// One block for the `N` queries from `first` on, which all see `slots` of it.
#[inline(always)]
fn attend_group<S: Simd, const N: usize>(
    simd: S,
    unit: &Unit<'_>,
    work: &mut Work,
    first: usize,
    (keys, values): (&[u16], &[u16]),
    slots: Range<usize>,
) {
    let size = unit.layer.head_size;
    let queries = &unit.queries[first * size..(first + N) * size];
    score_block::<S, N>(simd, queries, keys, &mut work.weights[first..first + N]);
    for query in first..first + N {
        let weights = &mut work.weights[query];
        if let Some(cap) = unit.shape.softcap {
            cap_scores(simd, weights, cap);
        }
        let scale = weigh_block(simd, weights, &mut work.local[query], &slots);
        let local = &mut work.local_values[query * size..(query + 1) * size];
        if scale != 1.0 {
            local.iter_mut().for_each(|value| *value *= scale);
        }
    }
    let local = &mut work.local_values[first * size..(first + N) * size];
    add_values::<S, N>(simd, &work.weights[first..first + N], values, slots, local);
}

/// Scores of all 64 keys of a block; those of unseen keys are rubbish.
#[inline(always)]
fn score_block<S: Simd, const N: usize>(
    simd: S,
    queries: &[f32],
    keys: &[u16],
    scores: &mut [[f32; PAGE_TOKENS]],
) {
    let size = queries.len() / N;
    let rows: [&[f32]; N] = std::array::from_fn(|query| &queries[query * size..(query + 1) * size]);
    for vector in 0..BLOCK_VECTORS {
        let mut sums = [simd.splat(0.0); N];
        for (element, row) in keys.as_chunks::<PAGE_TOKENS>().0.iter().enumerate() {
            let Some(lanes) = row[vector * LANES..].first_chunk::<LANES>() else {
                break;
            };
            let key = simd.load_f16(lanes);
            for query in 0..N {
                sums[query] = simd.fma(simd.splat(rows[query][element]), key, sums[query]);
            }
        }
        for query in 0..N {
            if let Some(target) = scores[query][vector * LANES..].first_chunk_mut::<LANES>() {
                simd.store(sums[query], target);
            }
        }
    }
}

#[inline(always)]
fn cap_scores<S: Simd>(simd: S, scores: &mut [f32; PAGE_TOKENS], cap: f32) {
    let wide = simd.splat(cap);
    for lanes in scores.as_chunks_mut::<LANES>().0 {
        let bent = math::tanh(simd, simd.div(simd.load(lanes), wide));
        simd.store(simd.mul(bent, wide), lanes);
    }
}

/// Turns the scores of the visible slots into weights, those of the others into 0, and
/// brings the running maximum and sum up to date. Returns the factor for what was summed
/// under the old maximum.
#[inline(always)]
fn weigh_block<S: Simd>(
    simd: S,
    scores: &mut [f32; PAGE_TOKENS],
    state: &mut Softmax,
    slots: &Range<usize>,
) -> f32 {
    scores[..slots.start].fill(f32::NEG_INFINITY);
    scores[slots.end..].fill(f32::NEG_INFINITY);
    let mut lanes_max = simd.splat(state.max);
    for lanes in scores.as_chunks::<LANES>().0 {
        lanes_max = simd.max(simd.load(lanes), lanes_max);
    }
    let mut lanes = [0.0; LANES];
    simd.store(lanes_max, &mut lanes);
    let max = lanes
        .into_iter()
        .fold(state.max, |max, lane| if lane > max { lane } else { max });
    let wide = simd.splat(max);
    let mut sum = simd.splat(0.0);
    for lanes in scores.as_chunks_mut::<LANES>().0 {
        let weights = math::exp(simd, simd.sub(simd.load(lanes), wide));
        sum = simd.add(sum, weights);
        simd.store(weights, lanes);
    }
    let mut scale = [0.0; LANES];
    simd.store(math::exp(simd, simd.splat(state.max - max)), &mut scale);
    *state = Softmax {
        max,
        sum: state.sum * scale[0] + fold_sum(simd, sum),
    };
    scale[0]
}

/// `local += weights * values`, for the visible slots in ascending order.
#[inline(always)]
fn add_values<S: Simd, const N: usize>(
    simd: S,
    weights: &[[f32; PAGE_TOKENS]],
    values: &[u16],
    slots: Range<usize>,
    local: &mut [f32],
) {
    let size = local.len() / N;
    for start in (0..size).step_by(LANES) {
        let mut sums: [S::F; N] = std::array::from_fn(|query| {
            super::load_padded(simd, &local[query * size + start..][..LANES])
        });
        for slot in slots.clone() {
            let Some(lanes) = values[slot * size + start..].first_chunk::<LANES>() else {
                break;
            };
            let value = simd.load_f16(lanes);
            for query in 0..N {
                sums[query] = simd.fma(simd.splat(weights[query][slot]), value, sums[query]);
            }
        }
        for query in 0..N {
            super::store_partial(
                simd,
                sums[query],
                &mut local[query * size + start..][..LANES],
            );
        }
    }
}

/// Adds the segment's state to that of the segments before it, and makes it fresh again.
#[inline(always)]
fn merge_segment<S: Simd>(simd: S, unit: &mut Unit<'_>, work: &mut Work) {
    let size = unit.layer.head_size;
    let states = work.local.iter_mut().zip(&mut work.total);
    let values = work
        .local_values
        .chunks_exact_mut(size)
        .zip(unit.out.chunks_exact_mut(size));
    for ((local, total), (local_values, out)) in states.zip(values) {
        if local.sum == 0.0 {
            continue;
        }
        if total.sum == 0.0 {
            *total = *local;
            out.copy_from_slice(local_values);
        } else {
            let max = if local.max > total.max {
                local.max
            } else {
                total.max
            };
            let mut old = [0.0; LANES];
            simd.store(math::exp(simd, simd.splat(total.max - max)), &mut old);
            let mut new = [0.0; LANES];
            simd.store(math::exp(simd, simd.splat(local.max - max)), &mut new);
            let (old, new) = (old[0], new[0]);
            *total = Softmax {
                max,
                sum: total.sum * old + local.sum * new,
            };
            for (out, value) in out.iter_mut().zip(&*local_values) {
                *out = *out * old + value * new;
            }
        }
        *local = FRESH;
        local_values.fill(0.0);
    }
}

/// Cuts rows into runs of at most [`TILE_ROWS`] rows of one sequence.
fn tiles(rows: &[AttentionRow]) -> Vec<Range<usize>> {
    let mut tiles = Vec::new();
    let mut start = 0;
    for end in 1..=rows.len() {
        let whole = end - start == TILE_ROWS;
        if whole || end == rows.len() || rows[end].sequence != rows[start].sequence {
            tiles.push(start..end);
            start = end;
        }
    }
    tiles
}

impl Kernels {
    /// `out` = attention of `queries`, both (rows, heads, `head_size`), over the keys and
    /// values of each row's sequence up to the row's own position, which must be written
    /// already. `tables[s][b]` is the page that holds positions `64 b ..` of sequence `s`.
    ///
    /// # Panics
    /// If a page lies outside `kv` or the shapes do not fit.
    pub fn attention(
        &self,
        pool: &Pool,
        (kv, layout, layer): (&[u16], &KvLayout, usize),
        shape: &AttentionShape,
        (queries, rows, tables): (&[f32], &[AttentionRow], &[&[u32]]),
        out: &mut [f32],
    ) {
        let layer = layout.layers[layer];
        let size = layer.head_size;
        let cols = shape.heads * size;
        assert_eq!(shape.heads % layer.kv_heads, 0, "whole groups of heads");
        assert_eq!(queries.len(), rows.len() * cols, "queries of every row");
        assert_eq!(out.len(), queries.len(), "out for every row");
        let group = shape.heads / layer.kv_heads;
        let tiles = tiles(rows);
        // With few units a group of heads is split, so that no thread stands idle.
        let split = split_of_group(group, tiles.len() * layer.kv_heads, pool.threads());
        let part = group / split;
        let parts = layer.kv_heads * split;
        let out = Disjoint::new(out);
        pool.for_each(tiles.len() * parts, &|index| {
            let tile = tiles[index / parts].clone();
            let heads = (index % parts) * part;
            let mut scaled = Vec::with_capacity(tile.len() * part * size);
            for row in tile.clone() {
                let query = &queries[row * cols + heads * size..][..part * size];
                scaled.extend(query.iter().map(|element| element * shape.scale));
            }
            let values = self.tier.launch(Unit {
                kv,
                page_elements: layout.page_elements(),
                layer,
                head: heads / group,
                shape: *shape,
                table: tables[rows[tile.start].sequence as usize],
                positions: rows[tile.clone()]
                    .iter()
                    .map(|row| row.position as usize)
                    .collect(),
                out: vec![0.0; scaled.len()],
                queries: scaled,
            });
            for (row, values) in tile.zip(values.chunks_exact(part * size)) {
                let start = row * cols + heads * size;
                // SAFETY: each unit has rows and heads of its own.
                let target = unsafe { out.slice(start..start + part * size) };
                target.copy_from_slice(values);
            }
        });
    }
}

/// Into how many equal parts a group of heads is cut: as few as keep all threads at work.
fn split_of_group(group: usize, units: usize, threads: usize) -> usize {
    let mut splits = (1..=group).filter(|split| group.is_multiple_of(*split));
    splits
        .find(|split| units * split >= 2 * threads)
        .unwrap_or(group)
}
