//! A backend whose logits are a hash of the whole token prefix, read back through the pages:
//! a wrong page table, a stale page or a wrong copy gives another text. It goes wrong when
//! it is told to.

use relight_engine::backend::{Backend, BackendError, Batch};
use relight_engine::pages::PageId;
use relight_protocol::limits::PAGE_TOKENS;

use crate::random::mix;
use crate::vocabulary;

/// How the next forward pass goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepFault {
    /// An error of the device.
    Error,
    Panic,
    /// One row has not; counted modulo the rows there are.
    OneRow(usize),
}

#[derive(Debug)]
pub(crate) struct SimBackend {
    /// One word per token of every page: a hash of all tokens up to it.
    cells: Vec<u64>,
    /// Rows of the last step, for its virtual duration.
    pub(crate) rows: usize,
    pub(crate) fault: Option<StepFault>,
}

impl SimBackend {
    pub(crate) fn new(page_count: u32) -> Self {
        let cells = page_count as usize * PAGE_TOKENS;
        Self {
            // Rubbish that differs from place to place: reading it is always wrong.
            cells: (0..cells as u64).map(|cell| mix(!cell)).collect(),
            rows: 0,
            fault: None,
        }
    }

    fn prefix_hash(&self, table: &[u32], count: usize) -> u64 {
        let cells = (0..count).map(|position| self.cells.get(cell(table, position)));
        cells.fold(0, |hash, cell| mix(hash ^ cell.copied().unwrap_or(1)))
    }

    fn compute(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) {
        logits.clear();
        for row in batch.rows {
            let table = batch.sequences.get(row.sequence as usize);
            let table = table.copied().unwrap_or_default();
            let position = row.position as usize;
            let before = self.prefix_hash(table, position);
            if let Some(cell) = self.cells.get_mut(cell(table, position)) {
                *cell = mix(before ^ (u64::from(row.token) + 1));
            }
            if row.logits {
                let hash = self.prefix_hash(table, position + 1);
                logits.extend((0..vocabulary::SIZE as u64).map(|token| logit(hash, token)));
            }
        }
    }
}

impl Backend for SimBackend {
    fn vocabulary(&self) -> usize {
        vocabulary::SIZE
    }

    fn page_count(&self) -> u32 {
        u32::try_from(self.cells.len() / PAGE_TOKENS).unwrap_or(u32::MAX)
    }

    fn forward(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError> {
        self.rows = batch.rows.len();
        let fault = self.fault.take();
        assert_ne!(fault, Some(StepFault::Panic), "told to panic");
        if fault == Some(StepFault::Error) {
            let message = "told to fail".to_owned();
            return Err(BackendError::Device { message });
        }
        self.compute(batch, logits);
        let drawn = logits.len() / vocabulary::SIZE;
        match fault {
            Some(StepFault::OneRow(row)) if drawn > 0 => {
                let broken = logits.chunks_exact_mut(vocabulary::SIZE).nth(row % drawn);
                broken.unwrap_or_default().fill(f32::NAN);
            }
            _ => {}
        }
        Ok(())
    }

    fn copy_page_prefix(&mut self, source: PageId, target: PageId, tokens: usize) {
        let source = source.0 as usize * PAGE_TOKENS;
        let target = target.0 as usize * PAGE_TOKENS;
        self.cells.copy_within(source..source + tokens, target);
    }
}

/// Where the state of a position is. Beyond all cells if the table has no page for it.
fn cell(table: &[u32], position: usize) -> usize {
    let page = table.get(position / PAGE_TOKENS);
    page.map_or(usize::MAX, |page| {
        *page as usize * PAGE_TOKENS + position % PAGE_TOKENS
    })
}

/// Uniform in [-4, 4).
fn logit(hash: u64, token: u64) -> f32 {
    let bits = mix(hash ^ mix(token)) >> 48;
    f32::from(u16::try_from(bits).unwrap_or(0)) / 8192.0 - 4.0
}
