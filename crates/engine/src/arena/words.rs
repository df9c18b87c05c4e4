//! Words that several processes can see.

use std::fs::File;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use super::ArenaError;

/// The first words of a file, shared with whoever else maps it. Each is read and written
/// whole; their order is the caller's business.
#[derive(Debug)]
pub struct SharedWords {
    map: MmapRaw,
}

impl SharedWords {
    /// Maps the first `count` words of `file`, which must be that long and stay so.
    ///
    /// # Errors
    /// `Map`.
    pub fn map(file: &File, count: usize, what: &'static str) -> Result<Self, ArenaError> {
        let map = MmapOptions::new()
            .len(count * size_of::<u64>())
            .map_raw(file);
        let map = map.map_err(|source| ArenaError::Map { what, source })?;
        Ok(Self { map })
    }

    /// As many words that nobody else maps.
    ///
    /// # Errors
    /// `Map`.
    pub fn private(count: usize, what: &'static str) -> Result<Self, ArenaError> {
        let map = MmapMut::map_anon(count * size_of::<u64>());
        let map = map.map_err(|source| ArenaError::Map { what, source })?;
        let map = MmapRaw::from(map);
        Ok(Self { map })
    }

    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let count = self.map.len() / size_of::<u64>();
        // SAFETY: the mapping starts on a page, holds `count` words and lives as long as the
        // borrow; every bit pattern is a valid word, and nobody has a plain reference to it.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().cast(), count) }
    }
}
