//! A backend for tests whose logits are a hash of the whole token prefix, read back through
//! the pages: a wrong page table, a stale page or a wrong copy gives other logits. Half of the
//! sequences repeat a phrase most of the time, so that drafts come true and fail.

use std::sync::Arc;

use relight_protocol::StepCosts;
use relight_protocol::limits::PAGE_TOKENS;

use crate::backend::{Backend, BackendError, Batch};
use crate::pages::test_memory::new_table;
use crate::pages::{PageId, PageMemory, PageTable, checksum, injected};
use crate::seeded::{Seeded, mix};

/// What a forward pass says it has taken.
pub(crate) const FORWARD_US: u64 = 150_000;

/// What a fake backend does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// Every step is an error.
    Refuses,
    /// Every step panics after it has written its pages.
    Panics,
    /// This row of logits is not finite.
    PoisonsRow(usize),
    /// No row of logits is finite.
    PoisonsAll,
}

#[derive(Debug)]
pub(crate) struct FakeBackend {
    vocabulary: usize,
    /// One word per token of every page: a hash of all tokens up to it.
    cells: Vec<u64>,
    /// Rows computed so far.
    pub(crate) rows: usize,
    /// Tokens copied from page to page so far.
    pub(crate) copied: usize,
    /// What is wrong with it.
    pub(crate) ailment: Option<Ailment>,
    /// Every so many-th step panics.
    pub(crate) panic_every: Option<usize>,
    steps: usize,
    /// How often it had to forget a failed step.
    pub(crate) resets: usize,
    pub(crate) table: Option<Arc<PageTable>>,
}

impl FakeBackend {
    pub(crate) fn new(vocabulary: usize, page_count: usize) -> Self {
        let cells = page_count * PAGE_TOKENS;
        Self {
            vocabulary,
            // Rubbish that differs from place to place: reading it is always wrong.
            cells: (0..cells as u64).map(|cell| mix(!cell)).collect(),
            rows: 0,
            copied: 0,
            ailment: None,
            panic_every: None,
            steps: 0,
            resets: 0,
            table: None,
        }
    }

    /// As [`Self::new`], but its pages outlive it.
    pub(crate) fn lasting(vocabulary: usize, page_count: usize) -> Self {
        let count = u32::try_from(page_count).unwrap();
        let (_file, table) = new_table(count);
        Self {
            table: Some(table),
            ..Self::new(vocabulary, page_count)
        }
    }

    /// Flips a bit of any page.
    pub(crate) fn damage(&mut self, random: &mut Seeded) {
        let cell = random.below(self.cells.len());
        self.cells[cell] ^= 1 << random.below(64);
    }

    /// The backend of the next engine after this one was killed.
    pub(crate) fn survivor(&mut self) -> Self {
        let fresh = Self::new(self.vocabulary, self.cells.len() / PAGE_TOKENS);
        match self.table.take() {
            None => fresh,
            Some(table) => Self {
                cells: std::mem::take(&mut self.cells),
                table: Some(table),
                ..fresh
            },
        }
    }

    fn cell(&self, table: &[u32], position: usize) -> usize {
        let page = table[position / PAGE_TOKENS] as usize;
        page * PAGE_TOKENS + position % PAGE_TOKENS
    }

    fn prefix_hash(&self, table: &[u32], count: usize) -> u64 {
        (0..count).fold(0, |hash, position| {
            mix(hash ^ self.cells[self.cell(table, position)])
        })
    }
}

impl PageMemory for FakeBackend {
    fn checksum(&self, page: PageId) -> u64 {
        let start = page.0 as usize * PAGE_TOKENS;
        checksum::page_checksum(&self.cells[start..start + PAGE_TOKENS])
    }

    fn table(&self) -> Option<Arc<PageTable>> {
        self.table.clone()
    }
}

impl Backend for FakeBackend {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn page_count(&self) -> u32 {
        u32::try_from(self.cells.len() / PAGE_TOKENS).unwrap()
    }

    fn costs(&self) -> StepCosts {
        StepCosts {
            feed_forward_us: u64::try_from(self.steps).unwrap() * FORWARD_US,
            ..StepCosts::default()
        }
    }

    fn forward(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError> {
        if self.ailment == Some(Ailment::Refuses) {
            return Err(BackendError::Device {
                message: "told to fail".to_owned(),
            });
        }
        logits.clear();
        for row in batch.rows {
            let table = batch.sequences[row.sequence as usize];
            let position = row.position as usize;
            let before = self.prefix_hash(table, position);
            let cell = self.cell(table, position);
            injected::tick();
            self.cells[cell] = mix(before ^ (u64::from(row.token) + 1));
            self.rows += 1;
            if row.logits {
                let hash = self.prefix_hash(table, position + 1);
                let start = logits.len();
                logits.extend((0..self.vocabulary).map(|token| logit(hash, token)));
                let repeats = self.cells[self.cell(table, 0)].is_multiple_of(2);
                if repeats && !hash.is_multiple_of(8) {
                    // Above all others, biased ones too.
                    logits[start + self.vocabulary - 1 - position % PHRASE] += 16.0;
                }
            }
        }
        self.steps += 1;
        let is_due = |every: usize| self.steps.is_multiple_of(every);
        let panics = self.ailment == Some(Ailment::Panics) || self.panic_every.is_some_and(is_due);
        assert!(!panics, "told to panic");
        match self.ailment {
            Some(Ailment::PoisonsRow(row)) => logits[row * self.vocabulary] = f32::NAN,
            Some(Ailment::PoisonsAll) => logits.fill(f32::NAN),
            _ => {}
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.resets += 1;
    }

    fn copy_page_prefix(&mut self, source: PageId, target: PageId, tokens: usize) {
        let source = source.0 as usize * PAGE_TOKENS;
        let target = target.0 as usize * PAGE_TOKENS;
        injected::tick();
        self.cells.copy_within(source..source + tokens, target);
        self.copied += tokens;
    }
}

/// Tokens of the phrase that is repeated.
const PHRASE: usize = 5;

/// Uniform in [-4, 4).
fn logit(hash: u64, token: usize) -> f32 {
    let bits = mix(hash ^ mix(token as u64)) >> 48;
    f32::from(u16::try_from(bits).unwrap()) / 8192.0 - 4.0
}

/// Index of the greatest value.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .max_by(|left, right| left.1.total_cmp(right.1));
    u32::try_from(best.unwrap().0).unwrap()
}
