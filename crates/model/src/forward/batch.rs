//! What one forward pass computes.

use relight_kernels::{PAGE_TOKENS, TileError};

/// One token to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub token: u32,
    pub position: u32,
    /// Index into [`Batch::sequences`].
    pub sequence: u32,
    /// Whether the logits after this token are wanted.
    pub logits: bool,
}

/// Rows of one sequence are consecutive and their positions ascend without a gap.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub rows: &'a [Row],
    /// Page table of each sequence: entry `p` is the page of positions `64 p .. 64 p + 64`.
    pub sequences: &'a [&'a [u32]],
}

/// Why a batch cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    #[error("token {token} of row {row} is not in the vocabulary of {vocab_size}")]
    UnknownToken {
        row: usize,
        token: u32,
        vocab_size: usize,
    },
    #[error("row {row} belongs to sequence {sequence} of {sequences}")]
    UnknownSequence {
        row: usize,
        sequence: u32,
        sequences: usize,
    },
    #[error("position {position} of row {row} is beyond its sequence's {pages} pages")]
    MissingPage {
        row: usize,
        position: u32,
        pages: usize,
    },
    #[error("row {row} needs page {page} of an arena of {pages}")]
    PageOutsideArena { row: usize, page: u32, pages: usize },
    #[error(transparent)]
    Tiles(#[from] TileError),
}

impl Batch<'_> {
    /// The page of each row; rows that [`Self::check`] would refuse have none.
    pub fn pages_written(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().filter_map(|row| {
            let table = self.sequences.get(row.sequence as usize)?;
            table.get(row.position as usize / PAGE_TOKENS).copied()
        })
    }

    /// Checks every row against a vocabulary and an arena of `arena_pages`.
    pub(super) fn check(&self, vocab_size: usize, arena_pages: usize) -> Result<(), ForwardError> {
        for (index, row) in self.rows.iter().enumerate() {
            if row.token as usize >= vocab_size {
                return Err(ForwardError::UnknownToken {
                    row: index,
                    token: row.token,
                    vocab_size,
                });
            }
            let Some(table) = self.sequences.get(row.sequence as usize) else {
                return Err(ForwardError::UnknownSequence {
                    row: index,
                    sequence: row.sequence,
                    sequences: self.sequences.len(),
                });
            };
            let Some(pages) = table.get(..=row.position as usize / PAGE_TOKENS) else {
                return Err(ForwardError::MissingPage {
                    row: index,
                    position: row.position,
                    pages: table.len(),
                });
            };
            if let Some(page) = pages.iter().find(|page| **page as usize >= arena_pages) {
                return Err(ForwardError::PageOutsideArena {
                    row: index,
                    page: *page,
                    pages: arena_pages,
                });
            }
        }
        Ok(())
    }
}
