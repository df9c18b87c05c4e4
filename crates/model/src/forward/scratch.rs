//! The buffers of a forward pass. They keep their memory from step to step.

use relight_kernels::{Activations, AttentionRow, KvRow, PAGE_TOKENS, RopeTable};

use super::costs::{Clock, Costs, Laps};
use super::{Batch, Model};
use crate::spec::Spec;

/// Tokens of a page.
const PAGE_SLOTS: u32 = 64;
const _: () = assert!(PAGE_SLOTS as usize == PAGE_TOKENS);

/// Buffers for the batches of one model.
#[derive(Debug)]
pub struct Scratch {
    /// The residual stream: (rows, width).
    pub(super) stream: Vec<f32>,
    /// Normalised stream: (rows, width).
    pub(super) input: Activations,
    /// (rows, heads, head dim)
    pub(super) queries: Vec<f32>,
    /// (rows, kv heads, head dim)
    pub(super) keys: Vec<f32>,
    /// (rows, kv heads, head dim)
    pub(super) values: Vec<f32>,
    /// What the heads saw: (rows, heads, head dim).
    pub(super) heads: Activations,
    /// Activated gate: (rows, inner width).
    pub(super) inner: Activations,
    /// (rows, inner width)
    pub(super) up: Vec<f32>,
    /// What is added to the stream: (rows, width).
    pub(super) output: Vec<f32>,
    /// By rotation of the spec, with the angles of the batch.
    pub(super) ropes: Vec<RopeTable>,
    /// Where each row's keys and values go.
    pub(super) places: Vec<KvRow>,
    pub(super) attention_rows: Vec<AttentionRow>,
    /// Which rows want logits.
    wanted: Vec<bool>,
    pub(super) laps: Laps,
}

impl Scratch {
    /// Empty buffers for `model`.
    #[must_use]
    pub fn new<A: AsRef<[u8]>>(model: &Model<A>) -> Self {
        let ropes = model.spec.ropes.iter().map(|rope| model.rope_table(rope));
        Self {
            stream: Vec::new(),
            input: Activations::new(),
            queries: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            heads: Activations::new(),
            inner: Activations::new(),
            up: Vec::new(),
            output: Vec::new(),
            ropes: ropes.collect(),
            places: Vec::new(),
            attention_rows: Vec::new(),
            wanted: Vec::new(),
            laps: Laps::default(),
        }
    }

    /// The same, and passes are timed with `clock`.
    #[must_use]
    pub fn timed(self, clock: Clock) -> Self {
        Self {
            laps: Laps::with(clock),
            ..self
        }
    }

    /// What the passes since the last call have cost.
    pub fn take_costs(&mut self) -> Costs {
        std::mem::take(&mut self.laps.costs)
    }

    /// Makes room for `batch`, which was checked, and computes what all layers share.
    pub(super) fn start(&mut self, batch: &Batch<'_>, spec: &Spec) {
        self.stream.resize(batch.rows.len() * spec.width, 0.0);
        for rope in &mut self.ropes {
            rope.prepare(batch.rows.iter().map(|row| row.position));
        }
        self.places.clear();
        self.attention_rows.clear();
        self.wanted.clear();
        for row in batch.rows {
            let pages = batch.sequences[row.sequence as usize];
            self.places.push(KvRow {
                page: pages[(row.position / PAGE_SLOTS) as usize],
                slot: row.position % PAGE_SLOTS,
            });
            self.attention_rows.push(AttentionRow {
                position: row.position,
                sequence: row.sequence,
            });
            self.wanted.push(row.logits);
        }
    }

    /// Drops the rows of the stream and the queries (rows, `query_width`) that nobody wants
    /// the logits of.
    pub(super) fn keep_rows_with_logits(&mut self, query_width: usize) {
        let width = self.stream.len() / self.wanted.len().max(1);
        keep(&mut self.stream, width, &self.wanted);
        keep(&mut self.queries, query_width, &self.wanted);
        let mut wanted = self.wanted.iter();
        self.attention_rows
            .retain(|_row| wanted.next() == Some(&true));
    }
}

/// Keeps the wanted rows of `rows` (wanted.len(), `cols`).
fn keep(rows: &mut Vec<f32>, cols: usize, wanted: &[bool]) {
    let mut kept = 0;
    for (row, _) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
        rows.copy_within(row * cols..(row + 1) * cols, kept * cols);
        kept += 1;
    }
    rows.truncate(kept * cols);
}
