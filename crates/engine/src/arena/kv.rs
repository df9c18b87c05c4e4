//! The pages of key/value state, with the table that says what is in them.
//!
//! ```text
//!   kv:  table (whole blocks of 4096 bytes) | page 0 | page 1 | ...    lazily zero-filled
//! ```

use std::fs::File;
use std::sync::Arc;

use super::mapping::Mapping;
use super::words::SharedWords;
use super::{ArenaError, file_length, set_length};
use crate::pages::{PageId, PageTable, TableShape};

pub(super) const KV: &str = "key/value arena";

/// Pages start at a multiple of this, so that they can be mapped, and are aligned for any
/// vector.
const ALIGNMENT: usize = 4096;

/// The pages of key/value state.
#[derive(Debug)]
pub struct KvArena {
    map: Mapping,
    page_bytes: usize,
    table: Option<Arc<PageTable>>,
}

impl KvArena {
    /// How many pages an earlier engine had given the arena; `None` if it is new. A restart
    /// keeps that number, so that the context stays as long as clients were told.
    ///
    /// # Errors
    /// `Open` if the file cannot be looked at.
    pub fn page_count(file: &File, page_bytes: usize) -> Result<Option<usize>, ArenaError> {
        let length = file_length(file, KV)?;
        // The table's rounding is less than a page, so no other count has this length.
        let guess = length / (page_bytes + TableShape::ENTRY_BYTES);
        let is_whole = guess > 0 && length == file_bytes(guess, page_bytes);
        Ok(is_whole.then_some(guess))
    }

    /// Memory for pages; it counts only as far as it is written. With a file, pages that an
    /// earlier engine of the same shape has sealed are there, and the table names them.
    ///
    /// # Errors
    /// What the system refused.
    pub fn open(file: Option<&File>, shape: TableShape) -> Result<Self, ArenaError> {
        let map_error = |source| ArenaError::Map { what: KV, source };
        let page_bytes = shape.page_bytes;
        let bytes = shape.page_count * page_bytes;
        let Some(file) = file else {
            return Ok(Self {
                map: Mapping::private(bytes).map_err(map_error)?,
                page_bytes,
                table: None,
            });
        };
        set_length(file, file_bytes(shape.page_count, page_bytes), KV)?;
        let table_bytes = table_bytes(shape.page_count);
        // As for the weights: one engine at a time maps the file, and the mapping of the table
        // ends where this one starts.
        let map = Mapping::shared(file, table_bytes, bytes, true).map_err(map_error)?;
        let words = SharedWords::map(file, table_bytes / size_of::<u64>(), KV)?;
        Ok(Self {
            map,
            page_bytes,
            table: Some(Arc::new(PageTable::open(words, shape))),
        })
    }

    /// Bytes of all pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.bytes().len()
    }

    /// The bytes of one page; none if there is no such page.
    #[must_use]
    pub fn page(&self, page: PageId) -> &[u8] {
        let index = usize::try_from(page.0).unwrap_or(usize::MAX);
        let mut pages = self.map.bytes().chunks_exact(self.page_bytes.max(1));
        pages.nth(index).unwrap_or_default()
    }

    /// Gives a page that is about to be written memory that is fast to read; it keeps what it
    /// holds.
    pub fn prepare(&mut self, page: PageId) {
        let index = usize::try_from(page.0).unwrap_or(usize::MAX);
        let start = index.saturating_mul(self.page_bytes);
        self.map
            .make_huge(start..start.saturating_add(self.page_bytes));
    }

    /// What the pages hold; none if they do not outlive this process.
    #[must_use]
    pub fn table(&self) -> Option<Arc<PageTable>> {
        self.table.clone()
    }

    /// The bytes of all pages.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.bytes_mut()
    }
}

fn table_bytes(page_count: usize) -> usize {
    TableShape::bytes(page_count).next_multiple_of(ALIGNMENT)
}

fn file_bytes(page_count: usize, page_bytes: usize) -> usize {
    table_bytes(page_count) + page_count * page_bytes
}
