//! Paged attention with one canonical order of operations.
//!
//! For a query at position `p` and head `h`, with keys in blocks of 64 (the pages) and
//! blocks in segments of 1024, both at absolute multiples:
//!
//! ```text
//! for each segment, ascending:                    a fresh state (m, l, o)
//!   for each block of it that has a visible key, ascending:
//!     s_j = chain over d of q_d * k_jd            visible keys only, q already scaled
//!           [* scale of k_j]
//!     m'  = max(m, max_j s_j)                     exact, so in any order
//!     p_j = exp(s_j - m')
//!     l   = l * exp(m - m') + sum_j p_j           16 lanes in order, then folded
//!     o_d = o_d * exp(m - m'), then + p_j [* scale of v_j] * v_jd for j ascending
//!   merge the state onto those of the segments before
//! out_d = o_d / l
//! ```
//!
//! `k_jd` and `v_jd` are elements as pages keep them, widened; only `KvType::Q8_0` has scales.
//! Which keys are visible depends on the query's position alone, so the result does not
//! depend on what else is in the batch or how the prompt was cut. Queries are independent:
//! they share loads of keys and values in groups that may be chosen freely. The method is
//! the online softmax of Milakov and Gimelshein (2018) over fixed blocks.

#![expect(
    unsafe_code,
    reason = "units of work write disjoint heads of the output"
)]

mod block;
mod pages;
mod plan;
mod state;
mod unit;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use self::pages::Pages;
use self::plan::Plan;
use self::unit::{Buffers, Unit};
use super::kv::KvLayout;
use crate::pool::Disjoint;
use crate::{Kernels, Pool};

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

thread_local! {
    /// Of the caller; taken out while a batch is computed.
    static PLAN: Cell<Plan> = Cell::default();
    static BUFFERS: RefCell<Buffers> = RefCell::default();
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
        (kv, layout, layer): (&[u8], &KvLayout, usize),
        shape: &AttentionShape,
        (queries, rows, tables): (&[f32], &[AttentionRow], &[&[u32]]),
        out: &mut [f32],
    ) {
        let layer = layout.layers[layer];
        let cols = shape.heads * layer.head_size;
        assert_eq!(shape.heads % layer.kv_heads, 0, "whole groups of heads");
        assert_eq!(queries.len(), rows.len() * cols, "queries of every row");
        assert_eq!(out.len(), queries.len(), "out for every row");
        let mut plan = PLAN.take();
        plan.cut(shape, &layer, rows, pool.threads());
        let out = Disjoint::new(out);
        let partial = Disjoint::new(&mut plan.partial);
        let (parts, units) = (&plan.parts, &plan.units);
        pool.for_each(units.len(), &|index| {
            let (part, segments) = &units[index];
            let part = &parts[*part];
            BUFFERS.with_borrow_mut(|buffers| {
                self.tier.launch(Unit {
                    pages: Pages {
                        kv,
                        page_bytes: layout.page_bytes(),
                        layer,
                        head: part.kv_head,
                        table: tables[rows[part.rows.start].sequence as usize],
                    },
                    shape,
                    queries,
                    rows,
                    out: &out,
                    part,
                    segments: segments.clone(),
                    partial: &partial,
                    buffers,
                });
            });
        });
        PLAN.set(plan);
    }
}

#[cfg(test)]
mod tests;
