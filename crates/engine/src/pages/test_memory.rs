//! Pages of a few words, for tests.

use std::cell::Cell;
use std::fs::File;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

use super::checksum::page_checksum;
use super::{PageId, PageMemory, PageTable, TableShape, injected};
use crate::arena::SharedWords;
use crate::seeded::{Seeded, mix};

/// Words of one page.
const PAGE_WORDS: usize = 8;
/// The model that the pages belong to.
pub(crate) const MODEL: u128 = 77;

pub(crate) struct TestMemory {
    words: Vec<Cell<u64>>,
    table: Option<(File, Arc<PageTable>)>,
}

impl TestMemory {
    /// Pages that end with the test.
    pub(crate) fn private(page_count: u32) -> Self {
        let count = page_count as usize * PAGE_WORDS;
        Self {
            words: (0..count).map(|_word| Cell::new(0)).collect(),
            table: None,
        }
    }

    /// Pages with a table, as the supervisor's are.
    pub(crate) fn lasting(page_count: u32) -> Self {
        Self {
            table: Some(new_table(page_count)),
            ..Self::private(page_count)
        }
    }

    /// The same memory as the next engine finds it.
    pub(crate) fn reopened(mut self, model: u128) -> Self {
        let page_count = u32::try_from(self.words.len() / PAGE_WORDS).unwrap();
        let (file, table) = self.table.take().unwrap();
        drop(table);
        let table = open_table(&file, page_count, model);
        self.table = Some((file, table));
        self
    }

    fn page(&self, page: PageId) -> &[Cell<u64>] {
        let start = page.0 as usize * PAGE_WORDS;
        &self.words[start..start + PAGE_WORDS]
    }

    /// Fills a page with what the state of its last tokens is; `tokens` start the sequence.
    /// The test may die between any two words.
    pub(crate) fn write(&self, page: PageId, tokens: &[u32]) {
        for (word, value) in self.page(page).iter().zip(state_of(tokens)) {
            injected::tick();
            word.set(value);
        }
    }

    /// Whether a page holds the state of the last of `tokens`.
    pub(crate) fn holds(&self, page: PageId, tokens: &[u32]) -> bool {
        let found = self.page(page).iter().map(Cell::get);
        found.eq(state_of(tokens))
    }

    pub(crate) fn flip_bit_of_page(&self, page: PageId, random: &mut Seeded) {
        let word = &self.page(page)[random.below(PAGE_WORDS)];
        word.set(word.get() ^ 1 << random.below(64));
    }

    /// Writes over the table, its header included, from outside.
    pub(crate) fn damage_table(&self, damage: impl FnOnce(&mut [u8])) {
        use std::os::unix::fs::FileExt;
        let (file, _table) = self.table.as_ref().unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).unwrap();
        damage(&mut bytes);
        file.write_all_at(&bytes, 0).unwrap();
    }
}

/// An empty table, and the file that it is in.
pub(crate) fn new_table(page_count: u32) -> (File, Arc<PageTable>) {
    let file = File::from(memfd_create("pages", MemfdFlags::CLOEXEC).unwrap());
    let table = open_table(&file, page_count, MODEL);
    (file, table)
}

fn open_table(file: &File, page_count: u32, model: u128) -> Arc<PageTable> {
    let shape = TableShape {
        model,
        page_bytes: PAGE_WORDS * size_of::<u64>(),
        page_count: page_count as usize,
    };
    let bytes = TableShape::bytes(shape.page_count);
    file.set_len(bytes as u64).unwrap();
    let words = SharedWords::map(file, bytes / size_of::<u64>(), "table").unwrap();
    Arc::new(PageTable::open(words, shape))
}

/// Different for different tokens.
fn state_of(tokens: &[u32]) -> impl Iterator<Item = u64> {
    let hash = tokens.iter().fold(1, |hash, token| {
        mix(hash ^ u64::from(*token)).wrapping_add(1)
    });
    (0..PAGE_WORDS as u64).map(move |word| mix(hash.wrapping_add(word)))
}

impl PageMemory for TestMemory {
    fn checksum(&self, page: PageId) -> u64 {
        let words: Vec<u64> = self.page(page).iter().map(Cell::get).collect();
        page_checksum(&words)
    }

    fn table(&self) -> Option<Arc<PageTable>> {
        let (_file, table) = self.table.as_ref()?;
        Some(Arc::clone(table))
    }
}
