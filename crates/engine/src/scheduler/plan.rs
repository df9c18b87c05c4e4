//! The next step, decided.

use super::Scheduler;
use crate::backend::{Batch, Row};
use crate::cost::StepWork;
use crate::pages::PageId;
use crate::sequence::{Sequence, SequenceKey};

/// State to be copied from page to page. Nobody holds the source for it: it stays what it
/// is until the step writes, because copies are made before that, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    pub source: PageId,
    pub target: PageId,
    pub tokens: usize,
}

/// What one sequence contributes to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub key: SequenceKey,
    pub rows: usize,
    /// How many of them, at the end, are for tokens that are not drawn yet.
    pub drafts: usize,
    /// Whether a token is drawn: from the last row that is no draft, and if that gives the
    /// first draft, from the next row, and so on.
    pub draws: bool,
}

impl Part {
    /// Whether only the last token was not computed yet.
    fn is_answer(&self) -> bool {
        self.draws && self.rows == self.drafts + 1
    }
}

/// Who waits for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Answers alone, each for its next token.
    Answers,
    /// Prompts alone.
    Prompts,
    Mixed,
}

/// A part that draws, with all that its tokens can be drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    pub key: SequenceKey,
    /// Place of its first row of logits among those of the step.
    pub first: usize,
    /// Rows with logits: the last that is no draft, then the drafts.
    pub rows: &'a [Row],
}

impl Draw<'_> {
    /// Whether the logits of row `index + 1` are those after `token`, drawn from row `index`.
    #[must_use]
    pub fn goes_on(&self, index: usize, token: u32) -> bool {
        let next = self.rows.get(index + 1);
        next.is_some_and(|next| next.token == token)
    }
}

/// One step.
#[derive(Debug, Default)]
pub struct StepPlan {
    copies: Vec<PageCopy>,
    parts: Vec<Part>,
    rows: Vec<Row>,
    tables: Vec<Vec<u32>>,
}

impl StepPlan {
    #[must_use]
    pub fn copies(&self) -> &[PageCopy] {
        &self.copies
    }

    /// In the order of the batch's sequences, and so of its rows of logits.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The parts that draw, in the order of the batch.
    pub fn draws(&self) -> impl Iterator<Item = Draw<'_>> {
        let (mut end, mut first) = (0, 0);
        let draws = self.parts.iter().map(move |part| {
            end += part.rows;
            let with_logits = if part.draws { part.drafts + 1 } else { 0 };
            first += with_logits;
            Draw {
                key: part.key,
                first: first - with_logits,
                rows: self.rows.get(end - with_logits..end).unwrap_or_default(),
            }
        });
        draws.filter(|draw| !draw.rows.is_empty())
    }

    /// Rows of logits.
    #[must_use]
    pub fn logit_rows(&self) -> usize {
        self.draws().map(|draw| draw.rows.len()).sum()
    }

    /// Who waits for it.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        let answers = self.parts.iter().filter(|part| part.is_answer()).count();
        match answers {
            0 => StepKind::Prompts,
            all if all == self.parts.len() => StepKind::Answers,
            _some => StepKind::Mixed,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What computing it costs.
    #[must_use]
    pub fn work(&self) -> StepWork {
        let keys = self.rows.iter().map(|row| u64::from(row.position) + 1);
        StepWork {
            rows: self.rows.len() as u64,
            keys: keys.sum(),
        }
    }

    /// Calls `compute` with the batch of this step.
    pub fn with_batch<T>(&self, compute: impl FnOnce(&Batch<'_>) -> T) -> T {
        let sequences: Vec<&[u32]> = self.tables.iter().map(Vec::as_slice).collect();
        compute(&Batch {
            rows: &self.rows,
            sequences: &sequences,
        })
    }

    /// Adds the next `count` tokens of a sequence, and its drafts if they are all there are.
    fn add(&mut self, sequence: &Sequence, count: usize) {
        let draws = count == sequence.remaining();
        let drafts = if draws { sequence.drafts() } else { &[] };
        assert!(
            sequence.may_write(count + drafts.len()),
            "a step would write a page that others see"
        );
        let index = self.tables.len();
        let start = sequence.computed();
        let last = start + count - 1;
        let tokens = sequence.tokens().iter().skip(start).take(count);
        for (position, token) in (start..).zip(tokens.chain(drafts)) {
            self.rows.push(Row {
                token: *token,
                position: narrow(position),
                sequence: narrow(index),
                logits: draws && position >= last,
            });
        }
        self.parts.push(Part {
            key: sequence.key,
            rows: count + drafts.len(),
            drafts: drafts.len(),
            draws,
        });
        let table = sequence.pages().iter().map(|page| page.id().0);
        self.tables.push(table.collect());
    }
}

/// Positions and batch indexes are bounded far below 2^32 by the limits.
fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// However many answers run, prompts advance by this much.
const PROMPT_ROWS_MIN: usize = 8;

impl Scheduler {
    /// Fills the step: sequences that lack one token first, then chunks of the others.
    pub(super) fn compose(&self, copies: Vec<PageCopy>) -> StepPlan {
        let mut plan = StepPlan {
            copies,
            ..StepPlan::default()
        };
        let mut budget = self.config.batch_rows;
        let mut prompts = Vec::new();
        for sequence in &self.running {
            if sequence.remaining() == 1 {
                plan.add(sequence, 1);
                budget -= 1 + sequence.drafts().len();
            } else {
                prompts.push(sequence);
            }
        }
        if !plan.is_empty() {
            let paced = self.pace.rows(self.running.len());
            let paced = paced.saturating_sub(plan.rows.len());
            budget = budget.min(paced.max(PROMPT_ROWS_MIN));
        }
        prompts.sort_by_key(|sequence| (self.urgency(sequence), sequence.arrival));
        for sequence in prompts {
            let count = sequence.remaining().min(self.config.chunk_rows).min(budget);
            if count > 0 {
                plan.add(sequence, count);
                budget -= count;
            }
        }
        plan
    }
}
