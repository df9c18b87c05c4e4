//! A unit of work: rows of one sequence and query heads of one key/value head, over some
//! segments of the keys.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::block::{
    self, BLOCK_VECTORS, Brain, Code, Element, GROUP_MAX, Half, Paged, Rows, Single, Weights,
};
use super::pages::{Pages, Side};
use super::plan::{Part, SEGMENT_TOKENS};
use super::state::{Softmax, merge};
use super::{AttentionRow, AttentionShape};
use crate::ops::kv::{KvType, PAGE_TOKENS};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd};

/// Keys and values of a block, as the group loops read them.
struct Block<'a, E: Element> {
    keys: Rows<'a, E>,
    values: Rows<'a, E>,
    key_scales: Option<[f32; PAGE_TOKENS]>,
    value_scales: Option<[f32; PAGE_TOKENS]>,
}

/// What a thread works in, kept from unit to unit. By query, which is row-major (row, head).
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// (queries, `head_size`): scaled.
    queries: Vec<f32>,
    /// State within the segment, and over the segments before it.
    segment: States,
    total: States,
    /// Positions that a row sees.
    visible: Vec<Range<usize>>,
    /// Keys and values of a block, widened: (vectors, `head_size`, 16) and (vectors, 64, 16).
    keys: Vec<f32>,
    values: Vec<f32>,
}

#[derive(Debug, Default)]
struct States {
    softmax: Vec<Softmax>,
    /// (queries, `head_size`): weighted values.
    sums: Vec<f32>,
}

impl States {
    fn start(&mut self, queries: usize, elements: usize) {
        self.softmax.clear();
        self.softmax.resize(queries, Softmax::FRESH);
        self.sums.clear();
        self.sums.resize(elements, 0.0);
    }

    /// Adds the states of the next segment.
    #[inline(always)]
    fn merge<S: Simd>(&mut self, simd: S, size: usize, segment: &Self) {
        let sums = self.sums.chunks_exact_mut(size);
        let totals = self.softmax.iter_mut().zip(sums);
        let sums = segment.sums.chunks_exact(size);
        for (total, (softmax, sums)) in totals.zip(segment.softmax.iter().zip(sums)) {
            merge(simd, total, (*softmax, sums));
        }
    }
}

/// See the module.
pub(super) struct Unit<'a> {
    pub(super) pages: Pages<'a>,
    pub(super) shape: &'a AttentionShape,
    /// All rows of the batch: (rows, heads, `head_size`).
    pub(super) queries: &'a [f32],
    pub(super) rows: &'a [AttentionRow],
    pub(super) out: &'a Disjoint<'a, f32>,
    /// What the unit, perhaps with others, computes.
    pub(super) part: &'a Part,
    pub(super) segments: Range<usize>,
    /// Where states wait for those of other units.
    pub(super) partial: &'a Disjoint<'a, f32>,
    pub(super) buffers: &'a mut Buffers,
}

impl Kernel for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        self.start();
        let (part, size) = (self.part, self.pages.layer.head_size);
        for segment in self.segments.clone() {
            let (queries, elements) = (part.queries(), self.buffers.queries.len());
            self.buffers.segment.start(queries, elements);
            self.walk(simd, segment);
            let state = &self.buffers.segment;
            if part.is_split() {
                part.keep(self.partial, segment, size, &state.softmax, &state.sums);
            } else {
                self.buffers.total.merge(simd, size, state);
            }
        }
        if part.is_split() {
            let own = self.segments.len();
            if part.pending.fetch_sub(own, Ordering::AcqRel) > own {
                return;
            }
            let Buffers { segment, total, .. } = &mut *self.buffers;
            for index in part.segments.clone() {
                let state = (&mut *segment.softmax, &mut *segment.sums);
                part.recall(self.partial, index, size, state);
                total.merge(simd, size, segment);
            }
        }
        self.finish();
    }
}

impl Unit<'_> {
    /// Columns of a row in `queries` and `out` that belong to the part.
    fn cols(&self, row: usize) -> Range<usize> {
        let size = self.pages.layer.head_size;
        let start = (row * self.shape.heads + self.part.heads.start) * size;
        start..start + self.part.heads.len() * size
    }

    /// Fills the buffers.
    fn start(&mut self) {
        let size = self.pages.layer.head_size;
        let heads = self.part.heads.len();
        let buffers = &mut *self.buffers;
        buffers.queries.resize(self.part.queries() * size, 0.0);
        buffers.visible.clear();
        for row in self.part.rows.clone() {
            let position = self.rows[row].position as usize;
            buffers.visible.push(self.shape.visible(position));
        }
        for group in groups(self.part.queries()) {
            let width = group.len();
            let interleaved = &mut buffers.queries[group.start * size..group.end * size];
            for (column, query) in group.enumerate() {
                let row = self.part.rows.start + query / heads;
                let head = self.part.heads.start + query % heads;
                let source = &self.queries[(row * self.shape.heads + head) * size..][..size];
                for (element, target) in source.iter().zip(interleaved.chunks_exact_mut(width)) {
                    target[column] = element * self.shape.scale;
                }
            }
        }
        let elements = self.pages.layer.head_elements();
        buffers
            .total
            .start(self.part.queries(), self.part.queries() * size);
        buffers.keys.resize(elements, 0.0);
        buffers.values.resize(elements, 0.0);
    }

    /// Divides by the sums of weights and writes the rows.
    fn finish(&self) {
        let size = self.pages.layer.head_size;
        let heads = self.part.heads.len();
        let total = &self.buffers.total;
        let rows = total.sums.chunks_exact(heads * size);
        let rows = rows.zip(total.softmax.chunks_exact(heads));
        for (row, (sums, softmax)) in self.part.rows.clone().zip(rows) {
            // SAFETY: the rows and heads of a part are written by its last unit alone.
            let out = unsafe { self.out.slice(self.cols(row)) };
            let heads = out.chunks_exact_mut(size).zip(sums.chunks_exact(size));
            for ((out, sums), softmax) in heads.zip(softmax) {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = sum / softmax.sum;
                }
            }
        }
    }

    /// Takes the blocks of a segment into the state of it.
    #[inline(always)]
    fn walk<S: Simd>(&mut self, simd: S, segment: usize) {
        let blocks = SEGMENT_TOKENS / PAGE_TOKENS;
        let end = self.part.blocks.end.min((segment + 1) * blocks);
        for block in self.part.blocks.start.max(segment * blocks)..end {
            let [keys, values] = self.pages.block(block);
            let next = if block + 1 < end {
                self.pages.block(block + 1)[0]
            } else {
                values
            };
            let sides = [keys, values, next];
            match self.pages.layer.kv_type {
                KvType::F16 => self.attend::<S, Half>(simd, block, sides),
                KvType::Bf16 => self.attend::<S, Brain>(simd, block, sides),
                KvType::Q8_0 => self.attend::<S, Code>(simd, block, sides),
            }
        }
    }

    /// Takes a block into the state of every query that sees any of it.
    #[inline(always)]
    fn attend<S: Simd, E: Paged>(
        &mut self,
        simd: S,
        index: usize,
        [keys, values, next]: [Side<'_>; 3],
    ) {
        let size = self.pages.layer.head_size;
        let (key_scales, value_scales) = (keys.scales(), values.scales());
        if self.part.queries() <= GROUP_MAX {
            let block = Block::<E> {
                keys: Rows {
                    elements: E::view(keys.elements),
                    count: size,
                    row: PAGE_TOKENS,
                    vector: LANES,
                    ahead: values.elements,
                },
                values: Rows {
                    elements: E::view(values.elements),
                    count: PAGE_TOKENS,
                    row: size,
                    vector: LANES,
                    ahead: next.elements,
                },
                key_scales,
                value_scales,
            };
            return self.attend_groups(simd, index, &block);
        }
        let mut wide_keys = std::mem::take(&mut self.buffers.keys);
        let mut wide_values = std::mem::take(&mut self.buffers.values);
        widen::<S, E>(simd, keys, BLOCK_VECTORS, values, &mut wide_keys);
        widen::<S, E>(simd, values, size / LANES, next, &mut wide_values);
        let block = Block::<Single> {
            keys: Rows {
                elements: &wide_keys,
                count: size,
                row: LANES,
                vector: size * LANES,
                ahead: &[],
            },
            values: Rows {
                elements: &wide_values,
                count: PAGE_TOKENS,
                row: LANES,
                vector: PAGE_TOKENS * LANES,
                ahead: &[],
            },
            key_scales,
            value_scales,
        };
        self.attend_groups(simd, index, &block);
        self.buffers.keys = wide_keys;
        self.buffers.values = wide_values;
    }

    /// Takes a block into the state of the queries, group by group.
    #[inline(always)]
    fn attend_groups<S: Simd, E: Element>(&mut self, simd: S, index: usize, block: &Block<'_, E>) {
        let size = self.pages.layer.head_size;
        let heads = self.part.heads.len();
        let Buffers {
            queries,
            segment,
            visible,
            ..
        } = &mut *self.buffers;
        let mut weights = [[0.0; PAGE_TOKENS]; GROUP_MAX];
        for group in groups(self.part.queries()) {
            let mut seen = [const { 0..0 }; GROUP_MAX];
            for (query, seen) in group.clone().zip(&mut seen) {
                *seen = slots(&visible[query / heads], index);
            }
            let seen = &seen[..group.len()];
            let first = seen.iter().map(|slots| slots.start).min().unwrap_or(0);
            let last = seen.iter().map(|slots| slots.end).max().unwrap_or(0);
            if first == last {
                continue;
            }
            let elements = group.start * size..group.end * size;
            let vectors = first / LANES..last.div_ceil(LANES);
            score_group(
                simd,
                &queries[elements.clone()],
                &block.keys,
                (group.len(), vectors),
                &mut weights,
            );
            if let Some(scales) = &block.key_scales {
                block::scale(simd, &mut weights[..group.len()], scales);
            }
            if let Some(cap) = self.shape.softcap {
                let scores = weights[..group.len()].iter_mut();
                scores.for_each(|scores| block::cap_scores(simd, scores, cap));
            }
            let states = &mut segment.softmax[group.clone()];
            let sums = &mut segment.sums[elements];
            let scales = block::weigh(simd, &mut weights, states, seen);
            for (sums, scale) in sums.chunks_exact_mut(size).zip(scales) {
                if scale != 1.0 {
                    sums.iter_mut().for_each(|sum| *sum *= scale);
                }
            }
            if let Some(scales) = &block.value_scales {
                block::scale(simd, &mut weights[..group.len()], scales);
            }
            add_values(simd, &weights, &block.values, seen, sums);
        }
    }
}

/// Adds weighted values: together for the slots that all queries see, for each query alone
/// those before and after.
#[inline(always)]
fn add_values<S: Simd, E: Element>(
    simd: S,
    weights: &Weights,
    values: &Rows<'_, E>,
    seen: &[Range<usize>],
    sums: &mut [f32],
) {
    let size = sums.len() / seen.len();
    let common = seen
        .iter()
        .cloned()
        .reduce(|common, slots| common.start.max(slots.start)..common.end.min(slots.end));
    let common = common.filter(|common| !common.is_empty()).unwrap_or(0..0);
    for (n, sums) in sums.chunks_exact_mut(size).enumerate() {
        let before = seen[n].start..common.start.min(seen[n].end);
        block::add_alone(simd, &weights[n], values, before, sums);
    }
    add_group(simd, weights, values, (seen.len(), &common), sums);
    for (n, sums) in sums.chunks_exact_mut(size).enumerate() {
        let after = common.end.max(seen[n].start)..seen[n].end;
        block::add_alone(simd, &weights[n], values, after, sums);
    }
}

/// Groups of at most [`GROUP_MAX`] queries, as even as may be.
fn groups(queries: usize) -> impl Iterator<Item = Range<usize>> {
    let groups = queries.div_ceil(GROUP_MAX);
    (0..groups).map(move |group| queries * group / groups..queries * (group + 1) / groups)
}

#[inline(always)]
fn score_group<S: Simd, E: Element>(
    simd: S,
    queries: &[f32],
    keys: &Rows<'_, E>,
    (count, vectors): (usize, Range<usize>),
    weights: &mut Weights,
) {
    match count {
        1 => block::score::<S, E, 1, 4>(simd, queries, keys, vectors, weights),
        2 => block::score::<S, E, 2, 2>(simd, queries, keys, vectors, weights),
        3 => block::score::<S, E, 3, 2>(simd, queries, keys, vectors, weights),
        4 => block::score::<S, E, 4, 1>(simd, queries, keys, vectors, weights),
        5 => block::score::<S, E, 5, 1>(simd, queries, keys, vectors, weights),
        _ => block::score::<S, E, GROUP_MAX, 1>(simd, queries, keys, vectors, weights),
    }
}

#[inline(always)]
fn add_group<S: Simd, E: Element>(
    simd: S,
    weights: &Weights,
    values: &Rows<'_, E>,
    (count, slots): (usize, &Range<usize>),
    sums: &mut [f32],
) {
    match count {
        1 => block::add::<S, E, 1, 4>(simd, weights, values, slots, sums),
        2 => block::add::<S, E, 2, 2>(simd, weights, values, slots, sums),
        3 => block::add::<S, E, 3, 2>(simd, weights, values, slots, sums),
        4 => block::add::<S, E, 4, 1>(simd, weights, values, slots, sums),
        5 => block::add::<S, E, 5, 1>(simd, weights, values, slots, sums),
        _ => block::add::<S, E, GROUP_MAX, 1>(simd, weights, values, slots, sums),
    }
}

/// Slots of block `block` that lie in `visible`.
fn slots(visible: &Range<usize>, block: usize) -> Range<usize> {
    let start = block * PAGE_TOKENS;
    let first = visible.start.saturating_sub(start).min(PAGE_TOKENS);
    let last = visible.end.saturating_sub(start).min(PAGE_TOKENS);
    first..last
}

/// Widens rows of `vectors` vectors, and sorts them by vector.
#[inline(always)]
fn widen<S: Simd, E: Paged>(
    simd: S,
    rows: Side<'_>,
    vectors: usize,
    ahead: Side<'_>,
    wide: &mut [f32],
) {
    let elements = E::view(rows.elements);
    let count = elements.len() / (vectors * LANES);
    for (k, row) in elements.chunks_exact(vectors * LANES).enumerate() {
        for (v, lanes) in row.as_chunks::<LANES>().0.iter().enumerate() {
            if v % E::VECTORS_AHEAD == 0 {
                let done = (k * vectors + v) * LANES * size_of::<E::Stored>();
                simd.prefetch(ahead.elements, done);
            }
            if let Some(target) = wide[(v * count + k) * LANES..].first_chunk_mut() {
                simd.store(E::load(simd, lanes), target);
            }
        }
    }
}
