//! How the work of a batch is cut up.
//!
//! A part is a run of rows of one sequence and query heads that share a key/value head. All
//! heads of a group stay together, because each converted key and value then serves them all,
//! unless threads would stand idle. A part that is a large share of the work is split into
//! its segments, whose states are merged by whichever thread finishes the last of them.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use super::state::Softmax;
use super::{AttentionRow, AttentionShape};
use crate::ops::kv::{KvLayer, PAGE_TOKENS};
use crate::pool::Disjoint;

/// Keys per segment.
pub(super) const SEGMENT_TOKENS: usize = 1024;
/// Queries of a part: as many as make the widening of a block cheap, and elements of them, so
/// that a part's state stays in a core's own cache.
const PART_QUERIES: usize = 96;
const PART_ELEMENTS: usize = 16 << 10;
/// Rows that a part has at least, if there are as many.
const PART_ROWS_MIN: usize = 8;
/// Parts per thread that even out the differences between them.
const PARTS_PER_THREAD: usize = 4;

/// Rows and heads whose output one thread writes.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rows: Range<usize>,
    /// Query heads, and the key/value head that they share.
    pub(super) heads: Range<usize>,
    pub(super) kv_head: usize,
    /// Blocks and segments that any of the rows sees.
    pub(super) blocks: Range<usize>,
    pub(super) segments: Range<usize>,
    /// Where the states of the segments are kept if units of their own compute them.
    partial: Option<usize>,
    /// Segments whose state is not kept yet.
    pub(super) pending: AtomicUsize,
}

impl Part {
    pub(super) fn queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    pub(super) fn is_split(&self) -> bool {
        self.partial.is_some()
    }

    /// Floats of a segment's state.
    fn state_len(&self, size: usize) -> usize {
        self.queries() * (size + 2)
    }

    /// Where a segment's state lies.
    fn state(&self, segment: usize, size: usize) -> Range<usize> {
        let len = self.state_len(size);
        let start = self.partial.unwrap_or(0) + (segment - self.segments.start) * len;
        start..start + len
    }

    /// Keeps a segment's state.
    pub(super) fn keep(
        &self,
        partial: &Disjoint<'_, f32>,
        segment: usize,
        size: usize,
        softmax: &[Softmax],
        sums: &[f32],
    ) {
        // SAFETY: a segment's state is written by its unit alone, and read by nobody before
        // `pending` says that it is there.
        let state = unsafe { partial.slice(self.state(segment, size)) };
        let (head, rest) = state.split_at_mut(sums.len());
        head.copy_from_slice(sums);
        for (pair, softmax) in rest.as_chunks_mut().0.iter_mut().zip(softmax) {
            *pair = [softmax.max, softmax.sum];
        }
    }

    /// Reads what [`Self::keep`] kept. Only for the thread that brought `pending` to 0.
    pub(super) fn recall(
        &self,
        partial: &Disjoint<'_, f32>,
        segment: usize,
        size: usize,
        (softmax, sums): (&mut [Softmax], &mut [f32]),
    ) {
        // SAFETY: every unit of the part has written, and one thread reads.
        let state = unsafe { partial.slice(self.state(segment, size)) };
        let (head, rest) = state.split_at(sums.len());
        sums.copy_from_slice(head);
        for ([max, sum], softmax) in rest.as_chunks().0.iter().zip(softmax) {
            (softmax.max, softmax.sum) = (*max, *sum);
        }
    }
}

/// The work of a batch, and room for its states; kept from call to call.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// (part, segments): what threads take.
    pub(super) units: Vec<(usize, Range<usize>)>,
    pub(super) partial: Vec<f32>,
}

impl Plan {
    /// Cuts up a batch for `threads`.
    pub(super) fn cut(
        &mut self,
        shape: &AttentionShape,
        layer: &KvLayer,
        rows: &[AttentionRow],
        threads: usize,
    ) {
        let group = shape.heads / layer.kv_heads;
        let wanted = threads * PARTS_PER_THREAD;
        let fit = PART_QUERIES.min(PART_ELEMENTS / layer.head_size) / group;
        let even = (rows.len() * layer.kv_heads).div_ceil(wanted);
        let tile = even.max(PART_ROWS_MIN).min(fit.max(1));
        self.cut_parts(shape, layer, rows, (tile, group));
        let work = self.parts.iter().map(work).sum::<usize>();
        self.cut_units(layer, work / wanted);
        if self.units.len() < threads {
            let split = threads.div_ceil(self.units.len().max(1));
            self.cut_parts(shape, layer, rows, (tile, group.div_ceil(split)));
            self.cut_units(layer, work / wanted / split);
        }
    }

    /// Parts of up to `tile` rows and `heads` heads.
    fn cut_parts(
        &mut self,
        shape: &AttentionShape,
        layer: &KvLayer,
        rows: &[AttentionRow],
        (tile, heads): (usize, usize),
    ) {
        let group = shape.heads / layer.kv_heads;
        self.parts.clear();
        let mut start = 0;
        while start < rows.len() {
            let same = rows[start..].iter().take(tile);
            let same = same.take_while(|row| row.sequence == rows[start].sequence);
            let end = start + same.count();
            let visible = rows[start..end].iter();
            let visible = visible.map(|row| shape.visible(row.position as usize));
            let (first, last) = visible.fold((usize::MAX, 0), |(first, last), visible| {
                (first.min(visible.start), last.max(visible.end))
            });
            for kv_head in 0..layer.kv_heads {
                let mut head = kv_head * group;
                while head < (kv_head + 1) * group {
                    let next = (head + heads).min((kv_head + 1) * group);
                    let segments = first / SEGMENT_TOKENS..last.div_ceil(SEGMENT_TOKENS);
                    self.parts.push(Part {
                        rows: start..end,
                        heads: head..next,
                        kv_head,
                        blocks: first / PAGE_TOKENS..last.div_ceil(PAGE_TOKENS),
                        pending: AtomicUsize::new(segments.len()),
                        segments,
                        partial: None,
                    });
                    head = next;
                }
            }
            start = end;
        }
    }

    /// One unit for each part, or for each segment of a part with more than `most` work.
    fn cut_units(&mut self, layer: &KvLayer, most: usize) {
        self.units.clear();
        let mut used = 0;
        for (index, part) in self.parts.iter_mut().enumerate() {
            if part.segments.len() > 1 && work(part) > most {
                part.partial = Some(used);
                used += part.segments.len() * part.state_len(layer.head_size);
                let segments = part.segments.clone();
                let units = segments.map(|segment| (index, segment..segment + 1));
                self.units.extend(units);
            } else {
                self.units.push((index, part.segments.clone()));
            }
        }
        self.partial.resize(used, 0.0);
    }
}

/// Blocks that the queries of a part walk, together.
fn work(part: &Part) -> usize {
    part.queries() * part.blocks.len()
}
