//! Which tokens of which sequences the next step computes.
//!
//! Every step takes one row of each sequence that only lacks its last token, then fills up
//! with chunks of prompts. How prompts are cut and mixed cannot change a result, so this
//! module is free to resize, pause and interleave them.
//!
//! Progress: pages go to older sequences first, the younger lose theirs and start over when
//! there is room, and no sequence may grow beyond the pool. So the oldest running one always
//! gets to its end.

mod admission;
mod drafting;
mod plan;

use std::collections::HashMap;

pub use drafting::Drafting;
pub use plan::{Draw, PageCopy, Part, StepKind, StepPlan};

use relight_protocol::RequestId;

use crate::pace::Pace;
use crate::pages::{AuditError, ChainHash, PageMemory, PageStore, PoolWitness};
use crate::row_times::RowTimes;
use crate::sequence::{Sequence, SequenceKey, SequenceStart};

/// Tokens ahead for which a running sequence keeps pages reserved, so that letting another
/// one in does not end in taking its pages away again at once.
const RESERVED_TOKENS: usize = 256;

/// Sizes of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerConfig {
    /// Sequences that hold pages at once.
    pub slots: usize,
    /// Rows of one step; at least `slots`, so that every sequence can advance.
    pub batch_rows: usize,
    /// Rows that one sequence contributes to a step.
    pub chunk_rows: usize,
    pub drafting: Drafting,
}

/// Gauges and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    pub running: usize,
    pub waiting: usize,
    pub pages_used: usize,
    pub pages_cached: usize,
    pub pages_total: usize,
    pub preemptions_total: u64,
    pub pages_adopted: u64,
    pub pages_corrupt: u64,
}

/// Sequences, waiting and running, and the pages they hold.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    pace: Pace,
    row_times: RowTimes,
    store: PageStore,
    /// Sequences that hold pages, oldest first.
    running: Vec<Sequence>,
    /// Sequences that hold none.
    waiting: Vec<Sequence>,
    /// Pages that a running sequence is about to seal: who else needs them waits.
    filling: HashMap<ChainHash, SequenceKey>,
    /// Prompt tokens found in the index since the core asked last.
    hits: Vec<(SequenceKey, usize)>,
    arrivals: u64,
    steps: u64,
    preemptions: u64,
}

impl Scheduler {
    #[must_use]
    pub fn new(config: SchedulerConfig, store: PageStore) -> Self {
        let slots = config.slots.max(1);
        Self {
            config: SchedulerConfig {
                slots,
                batch_rows: config.batch_rows.max(slots),
                chunk_rows: config.chunk_rows.max(1),
                drafting: config.drafting,
            },
            pace: Pace::default(),
            row_times: RowTimes::default(),
            store,
            running: Vec::new(),
            waiting: Vec::new(),
            filling: HashMap::new(),
            hits: Vec::new(),
            arrivals: 0,
            steps: 0,
            preemptions: 0,
        }
    }

    /// Longest sequence that the pool can hold.
    #[must_use]
    pub fn tokens_max(&self) -> usize {
        self.store.total_count() * relight_protocol::limits::PAGE_TOKENS
    }

    /// Takes on a sequence. It must end within `tokens_max()`.
    pub fn add(&mut self, start: SequenceStart) {
        assert!(
            start.tokens_max <= self.tokens_max(),
            "a sequence that the pool can never hold"
        );
        let mut sequence = Sequence::new(start, self.store.root());
        self.arrivals += 1;
        sequence.arrival = self.arrivals;
        sequence.arrival_step = self.steps;
        self.waiting.push(sequence);
    }

    /// Drops a sequence; its pages are free from here on. No-op if it is not there.
    pub fn remove(&mut self, key: SequenceKey) {
        self.remove_if(|other| other == key);
    }

    /// Drops all sequences of a request, as `remove` does.
    pub fn remove_request(&mut self, id: RequestId) {
        self.remove_if(|other| other.request == id);
    }

    /// As `remove_request`, and what its sequences computed is given to nobody, as far as
    /// nobody holds it yet.
    pub fn discard_request(&mut self, id: RequestId) {
        let own = self.running.iter().filter(|other| other.key.request == id);
        let chains: Vec<Vec<ChainHash>> = own.map(|other| other.chain().to_vec()).collect();
        self.remove_request(id);
        for chain in chains {
            self.store.distrust(&chain);
        }
    }

    fn remove_if(&mut self, is_gone: impl Fn(SequenceKey) -> bool) {
        self.waiting.retain(|sequence| !is_gone(sequence.key));
        for sequence in self.running.extract_if(.., |other| is_gone(other.key)) {
            stop_filling(&mut self.filling, &sequence);
        }
    }

    /// Takes a running sequence's pages away; it starts over when there is room.
    pub fn preempt(&mut self, key: SequenceKey) {
        if let Some(index) = self.running_index(key) {
            let sequence = self.running.remove(index);
            self.suspend(sequence);
        }
    }

    /// Whether there is anything to compute.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// How many rows a step may have in which answers wait for their next token.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Decides on the next step. Its copies must be made, then its rows computed, then
    /// [`Self::confirm`] called, or else the scheduler must not be used again.
    pub fn plan(&mut self, memory: &dyn PageMemory) -> StepPlan {
        self.steps += 1;
        self.grow();
        let copies = self.admit(memory);
        self.draft();
        self.compose(copies)
    }

    /// The step of `plan` is computed: what it filled may be seen by others now. Not so its
    /// drafts: only what was drawn is known to be of the sequence.
    pub fn confirm(&mut self, plan: &StepPlan, memory: &dyn PageMemory) {
        for part in plan.parts() {
            self.confirm_rows(part.key, part.rows - part.drafts, memory);
        }
    }

    /// The token that was pushed last had been drafted, so the step has computed it too.
    pub fn confirm_draft(&mut self, key: SequenceKey, memory: &dyn PageMemory) {
        self.confirm_rows(key, 1, memory);
    }

    fn confirm_rows(&mut self, key: SequenceKey, rows: usize, memory: &dyn PageMemory) {
        if let Some(index) = self.running_index(key)
            && let Some(sequence) = self.running.get_mut(index)
        {
            for name in sequence.confirm(rows, &mut self.store, memory) {
                self.filling.remove(&name);
            }
        }
    }

    /// Appends the token that was drawn for a sequence.
    pub fn push(&mut self, key: SequenceKey, token: u32) {
        if let Some(index) = self.running_index(key)
            && let Some(sequence) = self.running.get_mut(index)
        {
            sequence.push(token);
        }
    }

    /// For sequences that were let in for the first time since the last call: how many of
    /// their prompt's tokens were there already.
    pub fn take_hits(&mut self) -> Vec<(SequenceKey, usize)> {
        std::mem::take(&mut self.hits)
    }

    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        let total = self.store.total_count();
        SchedulerStats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            pages_used: total - self.store.available_count(),
            pages_cached: self.store.idle_count(),
            pages_total: total,
            preemptions_total: self.preemptions,
            pages_adopted: self.store.adopted_count(),
            pages_corrupt: self.store.corrupt_count(),
        }
    }

    /// Proves that no page is lost, shared by mistake or written behind its owner's back.
    ///
    /// # Errors
    /// The first page whose books do not balance.
    pub fn audit(&self) -> Result<(), AuditError> {
        let held = self.running.iter().flat_map(Sequence::pages);
        self.store.audit(held)?;
        assert!(self.waiting.iter().all(|other| other.pages().is_empty()));
        let fillers: std::collections::BTreeSet<_> = self.filling.values().collect();
        assert!(
            fillers
                .into_iter()
                .all(|key| self.running_index(*key).is_some()),
            "a page is awaited from a sequence that is gone"
        );
        Ok(())
    }

    /// Whose sequences these are; a request with several comes as often.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> {
        let all = self.running.iter().chain(&self.waiting);
        all.map(|sequence| sequence.key.request)
    }

    /// Tells whether anything still holds pages of this scheduler's pool.
    #[must_use]
    pub fn witness(&self) -> PoolWitness {
        self.store.witness()
    }

    /// The next plan panics, for tests.
    #[cfg(test)]
    pub(crate) fn fail_next_plan(&mut self) {
        self.config.batch_rows = 0;
    }

    /// A page behind the audit's back, for tests.
    #[cfg(test)]
    pub(crate) fn steal_page(&mut self) -> Option<Vec<crate::pages::PageHandle>> {
        self.store.take(1)
    }

    fn running_index(&self, key: SequenceKey) -> Option<usize> {
        self.running.iter().position(|sequence| sequence.key == key)
    }

    /// Gives running sequences the pages for their next tokens, oldest first; the youngest
    /// pay if there are none left.
    fn grow(&mut self) {
        let mut index = 0;
        while let Some(sequence) = self.running.get_mut(index) {
            let missing = sequence.missing_pages();
            if let Some(pages) = self.store.take(missing) {
                sequence.add_pages(pages);
                index += 1;
            } else {
                self.preempt_youngest();
            }
        }
    }

    fn preempt_youngest(&mut self) {
        assert!(
            self.running.len() > 1,
            "a sequence alone in the pool has all it needs"
        );
        if let Some(sequence) = self.running.pop() {
            self.suspend(sequence);
        }
    }

    fn suspend(&mut self, mut sequence: Sequence) {
        stop_filling(&mut self.filling, &sequence);
        sequence.release();
        self.preemptions += 1;
        self.waiting.push(sequence);
    }
}

fn stop_filling(filling: &mut HashMap<ChainHash, SequenceKey>, sequence: &Sequence) {
    for name in sequence.chain() {
        if filling.get(name) == Some(&sequence.key) {
            filling.remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
