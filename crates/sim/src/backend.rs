//! A backend whose logits are a hash of the whole token prefix, read back through the pages:
//! a wrong page table, a stale page or a wrong copy gives another text. Half of the sequences
//! repeat a phrase most of the time, so that drafts come true and fail. It goes wrong when it
//! is told to.

use std::sync::Arc;

use relight_engine::arena::Recorder;
use relight_engine::backend::{Backend, BackendError, Batch};
use relight_engine::pages::{PageId, PageMemory, PageTable};
use relight_protocol::RequestId;
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::recorder::{Activity, Doing, Lane};

use crate::memory::Memory;
use crate::random::mix;
use crate::vocabulary;

/// How a forward pass goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StepFault {
    /// An error of the device.
    Error,
    /// After its pages are written.
    Panic,
    /// No row has finite logits.
    AllRows,
    /// All of one row is this, which no token can be drawn from. Counted modulo the rows there
    /// are.
    OneRow { row: usize, value: f32 },
    /// The process ends in it.
    Crash,
    /// It never ends.
    Hang,
}

/// What became of a forward pass from which nobody returns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lost {
    pub(crate) fault: StepFault,
    /// What the generator's lane said.
    pub(crate) activity: Activity,
}

#[derive(Debug)]
pub(crate) struct SimBackend {
    memory: Memory,
    recorder: Option<Arc<Recorder>>,
    /// Rows of the last step, for its virtual duration.
    pub(crate) rows: usize,
    /// For the next step.
    pub(crate) fault: Option<StepFault>,
    /// Requests that make every step go wrong that they take part in.
    pub(crate) poisons: Vec<(RequestId, StepFault)>,
    /// Whose poison has worked in the last step.
    pub(crate) poisoned_by: Option<RequestId>,
    /// The last step went wrong because it was told to.
    pub(crate) was_told_to: bool,
    /// What the generator's lane said during the last step.
    pub(crate) seen: Activity,
    pub(crate) lost: Option<Lost>,
}

impl SimBackend {
    pub(crate) fn new(memory: Memory, recorder: Option<Arc<Recorder>>) -> Self {
        Self {
            memory,
            recorder,
            rows: 0,
            fault: None,
            poisons: Vec::new(),
            poisoned_by: None,
            was_told_to: false,
            seen: Activity::default(),
            lost: None,
        }
    }

    /// The fault of this step: one that was ordered, or that of a request which takes part.
    fn draw_fault(&mut self) -> Option<StepFault> {
        self.poisoned_by = None;
        if let Some(recorder) = &self.recorder {
            self.seen = recorder.activity(Lane::Generator);
        }
        let takes_part = |request: RequestId| match &self.seen.doing {
            Doing::Shared { participants } => participants.iter().any(|one| one.request == request),
            Doing::Idle | Doing::Private { .. } => false,
        };
        let poison = self.poisons.iter().find(|poison| takes_part(poison.0));
        self.poisoned_by = poison.map(|poison| poison.0);
        let fault = poison.map(|poison| poison.1).or_else(|| self.fault.take());
        self.was_told_to = fault.is_some();
        fault
    }

    fn prefix_hash(&self, table: &[u32], count: usize) -> u64 {
        let cells = (0..count).map(|position| self.memory.read(cell(table, position)));
        cells.fold(0, |hash, cell| mix(hash ^ cell))
    }

    fn compute(&self, batch: &Batch<'_>, logits: &mut Vec<f32>) {
        logits.clear();
        for row in batch.rows {
            let table = batch.sequences.get(row.sequence as usize);
            let table = table.copied().unwrap_or_default();
            let position = row.position as usize;
            let before = self.prefix_hash(table, position);
            let state = mix(before ^ (u64::from(row.token) + 1));
            self.memory.write(cell(table, position), state);
            if row.logits {
                let hash = self.prefix_hash(table, position + 1);
                let repeats = self.memory.read(cell(table, 0)).is_multiple_of(2);
                let beat = position % PHRASE;
                logits.extend((0..vocabulary::SIZE as u64).map(|token| logit(hash, token)));
                if repeats && !hash.is_multiple_of(8) {
                    raise(logits, beat);
                }
            }
        }
    }
}

impl PageMemory for SimBackend {
    fn checksum(&self, page: PageId) -> u64 {
        self.memory.checksum(page)
    }

    fn table(&self) -> Option<Arc<PageTable>> {
        self.memory.table.clone()
    }
}

impl Backend for SimBackend {
    fn vocabulary(&self) -> usize {
        vocabulary::SIZE
    }

    fn page_count(&self) -> u32 {
        self.memory.page_count()
    }

    fn forward(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError> {
        self.rows = batch.rows.len();
        let fault = self.draw_fault();
        self.compute(batch, logits);
        let drawn = logits.len() / vocabulary::SIZE;
        match fault {
            Some(StepFault::AllRows) => logits.fill(f32::NAN),
            Some(StepFault::OneRow { row, value }) if drawn > 0 => {
                let broken = logits.chunks_exact_mut(vocabulary::SIZE).nth(row % drawn);
                broken.unwrap_or_default().fill(value);
            }
            None | Some(StepFault::OneRow { .. }) => {}
            Some(fault) => {
                assert_ne!(fault, StepFault::Panic, "told to panic");
                if fault != StepFault::Error {
                    let activity = self.seen.clone();
                    self.lost = Some(Lost { fault, activity });
                }
                let message = "told to fail".to_owned();
                return Err(BackendError::Device { message });
            }
        }
        Ok(())
    }

    fn reset(&mut self) {}

    fn copy_page_prefix(&mut self, source: PageId, target: PageId, tokens: usize) {
        self.memory.copy(source, target, tokens);
    }
}

/// Tokens of the phrase that is repeated.
const PHRASE: usize = 5;

/// Raises a token's logit, counted from the end of the last row, above all others.
fn raise(logits: &mut [f32], from_end: usize) {
    if let Some(logit) = logits.iter_mut().rev().nth(from_end) {
        *logit += 16.0;
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
