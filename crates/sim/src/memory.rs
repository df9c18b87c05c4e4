//! The arena of pages as the supervisor keeps it: what an engine has sealed there is found by
//! the next one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use relight_engine::arena::SharedWords;
use relight_engine::pages::{PageId, PageTable, TableShape, checksum};
use relight_protocol::limits::PAGE_TOKENS;

use crate::random::{Random, mix};

/// The model that all engines of a run load.
pub(crate) const FINGERPRINT: u128 = 1;

/// See the module. Any number of engines may hold it, one of which is alive.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// One word per token of every page: a hash of all tokens up to it.
    cells: Rc<RefCell<Vec<u64>>>,
    pub(crate) table: Option<Arc<PageTable>>,
}

impl Memory {
    /// Without a table, as for an engine that has no supervisor.
    pub(crate) fn private(page_count: u32) -> Self {
        let cells = page_count as usize * PAGE_TOKENS;
        // Rubbish that differs from place to place: reading it is always wrong.
        let cells = (0..cells as u64).map(|cell| mix(!cell)).collect();
        Self {
            cells: Rc::new(RefCell::new(cells)),
            table: None,
        }
    }

    /// With one, unless the system has no memory for it.
    pub(crate) fn lasting(page_count: u32) -> Self {
        let shape = TableShape {
            model: FINGERPRINT,
            page_bytes: PAGE_TOKENS * size_of::<u64>(),
            page_count: page_count as usize,
        };
        let words = TableShape::bytes(shape.page_count) / size_of::<u64>();
        let words = SharedWords::private(words, "table of pages").ok();
        Self {
            table: words.map(|words| Arc::new(PageTable::open(words, shape))),
            ..Self::private(page_count)
        }
    }

    pub(crate) fn page_count(&self) -> u32 {
        u32::try_from(self.cells.borrow().len() / PAGE_TOKENS).unwrap_or(u32::MAX)
    }

    /// 1 beyond all pages.
    pub(crate) fn read(&self, cell: usize) -> u64 {
        self.cells.borrow().get(cell).copied().unwrap_or(1)
    }

    pub(crate) fn write(&self, cell: usize, value: u64) {
        if let Some(cell) = self.cells.borrow_mut().get_mut(cell) {
            *cell = value;
        }
    }

    pub(crate) fn copy(&self, source: PageId, target: PageId, tokens: usize) {
        let source = source.0 as usize * PAGE_TOKENS;
        let target = target.0 as usize * PAGE_TOKENS;
        let mut cells = self.cells.borrow_mut();
        cells.copy_within(source..source + tokens, target);
    }

    pub(crate) fn checksum(&self, page: PageId) -> u64 {
        let start = page.0 as usize * PAGE_TOKENS;
        let cells = self.cells.borrow();
        let page = cells.get(start..start + PAGE_TOKENS);
        checksum::page_checksum(page.unwrap_or_default())
    }

    /// Flips one bit somewhere.
    pub(crate) fn damage(&self, random: &mut Random) {
        let cell = random.index(self.cells.borrow().len());
        let flipped = self.read(cell) ^ 1 << random.below(64);
        self.write(cell, flipped);
    }
}
