//! The seam to whatever computes: the scheduler and everything above it know only this.

pub use relight_model::forward::{Batch, ForwardError, Row};

use relight_protocol::StepCosts;

use crate::pages::{PageId, PageMemory};

/// Why a step could not be computed. The pages it was to write hold rubbish then.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error("the device failed: {message}")]
    Device { message: String },
}

/// Computes logits over paged key/value state.
///
/// The contract that everything rests on: the logits of a row, and the bytes that its
/// position has in the pages, are a pure function of the tokens of its sequence up to it.
pub trait Backend: PageMemory {
    /// Entries of one row of logits.
    fn vocabulary(&self) -> usize;

    /// Pages of the arena.
    fn page_count(&self) -> u32;

    /// Size of the model, for a first guess at how long steps take.
    fn parameter_count(&self) -> u64 {
        0
    }

    /// What forward passes have cost since the backend was made; nothing if it keeps no count.
    fn costs(&self) -> StepCosts {
        StepCosts::default()
    }

    /// Computes `batch`, writes its state into the pages and replaces `logits` by one row of
    /// `vocabulary()` values per row that wants them, in order.
    ///
    /// # Errors
    /// See [`BackendError`].
    fn forward(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError>;

    /// Forgets whatever a failed step may have left half done outside the pages. Weights and
    /// pages stay where they are.
    fn reset(&mut self);

    /// Copies the state of the first `tokens` tokens of page `source` to page `target`, which
    /// may be the same.
    fn copy_page_prefix(&mut self, source: PageId, target: PageId, tokens: usize);
}
