//! The seam to whatever computes: the scheduler and everything above it know only this.

use crate::pages::PageId;

/// One token to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub token: u32,
    pub position: u32,
    /// Index into the batch's sequences.
    pub sequence: u32,
    /// Whether this row's logits are wanted.
    pub logits: bool,
}

/// The input of one step. Rows of one sequence are consecutive, their positions ascending
/// and, together with what the pages hold already, without a gap.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub rows: &'a [Row],
    /// Page table of each sequence: entry `p` is the page of positions `64p..64p+64`.
    pub sequences: &'a [&'a [u32]],
}

/// Why a step could not be computed. The pages it was to write hold rubbish then.
#[derive(Debug, thiserror::Error)]
#[error("the forward pass failed: {message}")]
pub struct BackendError {
    pub message: String,
}

/// Computes logits over paged key/value state.
///
/// The contract that everything rests on: the logits of a row, and the bytes that its
/// position has in the pages, are a pure function of the tokens of its sequence up to it.
pub trait Backend {
    /// Entries of one row of logits.
    fn vocabulary(&self) -> usize;

    /// Pages of the arena.
    fn page_count(&self) -> u32;

    /// Computes `batch`, writes its state into the pages and replaces `logits` by one row of
    /// `vocabulary()` values per row that wants them, in order.
    ///
    /// # Errors
    /// See [`BackendError`].
    fn forward(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Copies the state of the first `tokens` tokens of page `source` to page `target`, which
    /// may be the same.
    fn copy_page_prefix(&mut self, source: PageId, target: PageId, tokens: usize);
}
