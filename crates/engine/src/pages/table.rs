//! What is in the pages of an arena that outlives the engine, written so that it is true
//! whenever the engine dies.
//!
//! ```text
//!   table:   header (16 words) | entry of page 0 | entry of page 1 | ...
//!
//!   header:  magic | version, tokens per page | model u128 | bytes per page | pages
//!   entry (40 words of 8 bytes):
//!     0      seal          checksum of words 1 to 36 and the page's number; 0: no entry
//!     1,2    parent        name of the page before
//!     3      checksum      of the page's bytes
//!     4      number        order of sealing: parents before children
//!     5-36   tokens        two in each word
//! ```
//!
//! An entry is written when its page's bytes are final, its seal last. The seal is cleared
//! before the page may be written again. So at any moment a sound seal means that the page
//! holds what the entry says; a process that is killed has made all of its stores up to some
//! point of its program, and none after it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use relight_protocol::limits::PAGE_TOKENS;

use super::checksum::fold;
use super::pool::PageId;
use super::prefix::{ChainHash, PageTokens};
use crate::arena::SharedWords;

const MAGIC: u64 = u64::from_le_bytes(*b"RELIGHTP");
/// Raised with every change of this layout, of the checksum, or of the layout of pages.
const VERSION: u64 = 1;

const HEADER_WORDS: usize = 16;
const ENTRY_WORDS: usize = 40;
const PARENT: usize = 1;
const CHECKSUM: usize = 3;
const NUMBER: usize = 4;
const TOKENS: usize = 5;
/// Words of an entry that carry something.
const USED_WORDS: usize = TOKENS + PAGE_TOKENS / 2;
const _: () = assert!(USED_WORDS <= ENTRY_WORDS && PAGE_TOKENS.is_multiple_of(2));

/// What an arena is for. Pages are adopted only from an arena of exactly the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// The model's fingerprint.
    pub model: u128,
    pub page_bytes: usize,
    pub page_count: usize,
}

impl TableShape {
    /// Bytes that each page takes in the table.
    pub const ENTRY_BYTES: usize = ENTRY_WORDS * size_of::<u64>();

    /// Bytes of a table for so many pages.
    #[must_use]
    pub fn bytes(page_count: usize) -> usize {
        HEADER_WORDS * size_of::<u64>() + page_count * Self::ENTRY_BYTES
    }

    fn header(&self) -> [u64; HEADER_WORDS] {
        let [low, high] = halves(self.model);
        let mut header = [0; HEADER_WORDS];
        let fields = [
            MAGIC,
            VERSION << 32 | PAGE_TOKENS as u64,
            low,
            high,
            self.page_bytes as u64,
            self.page_count as u64,
        ];
        for (word, field) in header.iter_mut().zip(fields) {
            *word = field;
        }
        header
    }
}

fn halves(value: u128) -> [u64; 2] {
    let bytes = value.to_le_bytes();
    let (words, _rest) = bytes.as_chunks::<8>();
    let mut halves = [0; 2];
    for (half, word) in halves.iter_mut().zip(words) {
        *half = u64::from_le_bytes(*word);
    }
    halves
}

/// What a sealed page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub parent: ChainHash,
    pub tokens: Box<PageTokens>,
    /// Of the page's bytes.
    pub checksum: u64,
    /// Grows from page to page in the order of sealing.
    pub number: u64,
}

impl Entry {
    /// All words but the seal.
    fn words(&self) -> impl Iterator<Item = u64> {
        let (pairs, _rest) = self.tokens.as_chunks::<2>();
        let tokens = pairs
            .iter()
            .map(|[first, second]| u64::from(*first) | u64::from(*second) << 32);
        halves(self.parent.bits())
            .into_iter()
            .chain([self.checksum, self.number])
            .chain(tokens)
    }

    fn seal(&self, page: PageId) -> u64 {
        // 0 means that there is none.
        fold(u64::from(page.0), self.words()).max(1)
    }

    fn read(words: &[AtomicU64]) -> Self {
        let word = |index: usize| {
            let word = words.get(index);
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        let mut tokens = Box::new([0; PAGE_TOKENS]);
        for (pair, index) in tokens.as_chunks_mut::<2>().0.iter_mut().zip(TOKENS..) {
            let both = word(index);
            *pair = [low_half(both), low_half(both >> 32)];
        }
        let parent = u128::from(word(PARENT)) | u128::from(word(PARENT + 1)) << 64;
        Self {
            parent: ChainHash::from_bits(parent),
            tokens,
            checksum: word(CHECKSUM),
            number: word(NUMBER),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
fn low_half(word: u64) -> u32 {
    word as u32
}

/// What is found where an entry may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Entry(Entry),
    /// Something that no engine has written.
    Rubbish,
}

/// The table of one arena.
#[derive(Debug)]
pub struct PageTable {
    words: SharedWords,
}

impl PageTable {
    /// The table in `words`, which must have room for all pages of `shape`. One that was made
    /// for another shape is emptied.
    #[must_use]
    pub fn open(words: SharedWords, shape: TableShape) -> Self {
        let header = shape.header();
        let found = words.words().iter().take(HEADER_WORDS);
        let is_same = found.map(|word| word.load(Ordering::Acquire)).eq(header);
        let table = Self { words };
        if !is_same {
            tracing::info!("pages begin empty: their table is new, or not of this model");
            table.empty(&header);
        }
        table
    }

    fn empty(&self, header: &[u64; HEADER_WORDS]) {
        let (old, entries) = self.split();
        // The old header goes first, so that a death half way leaves a table of nobody.
        for word in old.iter().chain(entries) {
            store(word, 0);
        }
        fence(Ordering::Release);
        for (word, value) in old.iter().zip(header) {
            store(word, *value);
        }
    }

    fn split(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let words = self.words.words();
        words.split_at_checked(HEADER_WORDS).unwrap_or_default()
    }

    fn words_of(&self, page: PageId) -> Option<&[AtomicU64; ENTRY_WORDS]> {
        let index = usize::try_from(page.0).ok()?;
        self.split().1.as_chunks::<ENTRY_WORDS>().0.get(index)
    }

    /// What is there for a page.
    #[must_use]
    pub fn read(&self, page: PageId) -> Found {
        let Some(words) = self.words_of(page) else {
            return Found::Nothing;
        };
        let seal = words.first().map_or(0, |seal| seal.load(Ordering::Acquire));
        if seal == 0 {
            return Found::Nothing;
        }
        let entry = Entry::read(words);
        if entry.seal(page) == seal {
            Found::Entry(entry)
        } else {
            Found::Rubbish
        }
    }

    /// Whether there is anything for a page.
    #[must_use]
    pub fn is_sealed(&self, page: PageId) -> bool {
        let seal = self.words_of(page).and_then(|words| words.first());
        seal.is_some_and(|seal| seal.load(Ordering::Relaxed) != 0)
    }

    /// Says what a page holds. Its bytes must be final, and there must be no entry for it.
    ///
    /// # Panics
    /// If there is one, or no such page.
    pub fn seal(&self, page: PageId, entry: &Entry) {
        let words = self.words_of(page);
        assert!(words.is_some(), "page {page:?} is not in the table");
        assert!(!self.is_sealed(page), "page {page:?} is sealed twice");
        let Some([seal, rest @ ..]) = words else {
            return;
        };
        for (word, value) in rest.iter().zip(entry.words()) {
            store(word, value);
        }
        // The bytes of the page and of its entry come before the seal.
        fence(Ordering::Release);
        store(seal, entry.seal(page));
    }

    /// Says that a page's bytes may change from here on.
    pub fn clear(&self, page: PageId) {
        if let Some([seal, ..]) = self.words_of(page) {
            store(seal, 0);
            // The seal is gone before any byte of the page changes.
            fence(Ordering::Release);
        }
    }
}

/// Every store to the table, so that tests can die at each.
fn store(word: &AtomicU64, value: u64) {
    #[cfg(test)]
    injected::tick();
    word.store(value, Ordering::Relaxed);
}

/// Death at a chosen operation, for tests.
#[cfg(test)]
pub(crate) mod injected {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// This thread dies before its `count + 1`th operation from here.
    pub(crate) fn die_after(count: Option<u64>) {
        LEFT.set(count);
    }

    /// One operation on memory that outlives the engine.
    pub(crate) fn tick() {
        let Some(left) = LEFT.get() else { return };
        LEFT.set(left.checked_sub(1));
        if left == 0 {
            // Nobody need hear of it.
            std::panic::resume_unwind(Box::new("killed"));
        }
    }
}

#[cfg(test)]
mod tests;
