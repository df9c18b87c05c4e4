//! Pages as owned values. A page is free, or held by sequences, or remembered by the prefix
//! index, or both of the last two. Handles give their share back when they are dropped, so
//! a leak needs a leaked value and a double return does not compile.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Index of a page in the KV arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// A pool whose books do not balance. Whatever finds this must stop using the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    #[error("page {page:?} is held {found} times, but its count says {recorded}")]
    Shares {
        page: PageId,
        recorded: u32,
        found: u32,
    },
    #[error("page {page:?}: remembered by the index is {found}, but its mark says {recorded}")]
    Cached {
        page: PageId,
        recorded: bool,
        found: bool,
    },
    #[error("page {page:?} is {listed} times on the free list, expected {expected}")]
    Free {
        page: PageId,
        listed: u32,
        expected: u32,
    },
    #[error("{recorded} idle pages are counted, {found} exist")]
    Idle { recorded: usize, found: usize },
    #[error("page {page:?} is indexed under a chain that is not wholly there")]
    Orphan { page: PageId },
    #[error("page {page:?}: the table having an entry for it is {found}, expected {expected}")]
    Sealed {
        page: PageId,
        expected: bool,
        found: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    /// Handles of sequences.
    shares: u32,
    /// Whether the prefix index remembers the page.
    cached: bool,
}

/// What the pool and all handles share. No borrow of `free` outlives one statement, so the
/// drops of handles cannot meet a borrowed list.
#[derive(Debug)]
struct Books {
    states: Vec<Cell<PageState>>,
    /// Last in, first out: a page that was touched lately costs no new memory.
    free: RefCell<Vec<PageId>>,
    /// Pages that only the index holds.
    idle: Cell<usize>,
}

impl Books {
    fn state(&self, page: PageId) -> &Cell<PageState> {
        let slot = usize::try_from(page.0)
            .ok()
            .and_then(|index| self.states.get(index));
        match slot {
            Some(state) => state,
            None => unknown_page(page, self.states.len()),
        }
    }

    fn add_share(&self, page: PageId) {
        let cell = self.state(page);
        let mut state = cell.get();
        if state.cached && state.shares == 0 {
            self.idle.set(self.idle.get() - 1);
        }
        state.shares += 1;
        cell.set(state);
    }

    fn drop_share(&self, page: PageId) {
        let cell = self.state(page);
        let mut state = cell.get();
        state.shares -= 1;
        cell.set(state);
        if state.shares > 0 {
            return;
        }
        if state.cached {
            self.idle.set(self.idle.get() + 1);
        } else {
            self.free.borrow_mut().push(page);
        }
    }

    fn drop_cached(&self, page: PageId) {
        let cell = self.state(page);
        let mut state = cell.get();
        state.cached = false;
        cell.set(state);
        if state.shares == 0 {
            self.idle.set(self.idle.get() - 1);
            self.free.borrow_mut().push(page);
        }
    }
}

#[cold]
#[expect(
    clippy::panic,
    reason = "page ids are made by the pool alone, so this is a bug of ours"
)]
fn unknown_page(page: PageId, count: usize) -> ! {
    panic!("page {page:?} is not one of {count}")
}

/// All pages of one KV arena.
#[derive(Debug)]
pub struct Pool {
    books: Rc<Books>,
}

impl Pool {
    /// A pool of `count` free pages; low numbers are given out first.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let books = Books {
            states: (0..count)
                .map(|_page| Cell::new(PageState::default()))
                .collect(),
            free: RefCell::new((0..count).rev().map(PageId).collect()),
            idle: Cell::new(0),
        };
        Self {
            books: Rc::new(books),
        }
    }

    /// See [`PoolWitness`].
    #[must_use]
    pub fn witness(&self) -> PoolWitness {
        PoolWitness {
            books: Rc::downgrade(&self.books),
        }
    }

    #[must_use]
    pub fn total_count(&self) -> usize {
        self.books.states.len()
    }

    #[must_use]
    pub fn free_count(&self) -> usize {
        self.books.free.borrow().len()
    }

    /// Pages that nobody but the prefix index holds.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.books.idle.get()
    }

    /// `count` free pages, or none at all.
    #[must_use]
    pub fn take(&self, count: usize) -> Option<Vec<PageHandle>> {
        let taken = {
            let mut free = self.books.free.borrow_mut();
            let keep = free.len().checked_sub(count)?;
            free.split_off(keep)
        };
        let handles = taken.into_iter().rev().map(|page| self.handle(page));
        Some(handles.collect())
    }

    /// The index's shares of pages that are free and hold what an earlier engine computed.
    ///
    /// # Panics
    /// If one of them is not free.
    pub(super) fn cache_free(&self, pages: &[PageId]) -> Vec<CachedPage> {
        let mut cached = Vec::with_capacity(pages.len());
        for page in pages {
            let handle = self.handle(*page);
            cached.push(handle.cache());
            // It is idle from here on, and not free: that needs the list to be without it.
            drop(handle);
        }
        let states = &self.books;
        let mut free = states.free.borrow_mut();
        free.retain(|page| !states.state(*page).get().cached);
        drop(free);
        assert_eq!(self.free_count() + self.idle_count(), self.total_count());
        cached
    }

    fn handle(&self, page: PageId) -> PageHandle {
        self.books.add_share(page);
        PageHandle {
            page,
            books: Rc::clone(&self.books),
        }
    }

    /// Proves that every page is where exactly these handles and index entries say it is.
    ///
    /// # Errors
    /// The first page whose books do not balance.
    pub fn audit<'a, 'b>(
        &self,
        handles: impl Iterator<Item = &'a PageHandle>,
        cached: impl Iterator<Item = &'b CachedPage>,
    ) -> Result<(), AuditError> {
        let mut found = vec![PageState::default(); self.total_count()];
        for handle in handles {
            if let Some(state) = found.get_mut(handle.index()) {
                state.shares += 1;
            }
        }
        for page in cached {
            if let Some(state) = found.get_mut(page.index()) {
                state.cached = true;
            }
        }
        let mut listed = vec![0_u32; self.total_count()];
        for page in self.books.free.borrow().iter() {
            if let Some(count) = usize::try_from(page.0)
                .ok()
                .and_then(|index| listed.get_mut(index))
            {
                *count += 1;
            }
        }
        let mut idle = 0;
        for ((page, found), listed) in (0..).map(PageId).zip(found).zip(listed) {
            audit_page(page, self.books.state(page).get(), found, listed)?;
            idle += usize::from(found.cached && found.shares == 0);
        }
        let recorded = self.idle_count();
        if recorded != idle {
            return Err(AuditError::Idle {
                recorded,
                found: idle,
            });
        }
        Ok(())
    }
}

/// Outlives a pool to tell whether it is gone, and every handle with it.
#[derive(Debug)]
pub struct PoolWitness {
    books: Weak<Books>,
}

impl PoolWitness {
    /// The pool itself, if it is there, and the handles of its pages.
    #[must_use]
    pub fn holder_count(&self) -> usize {
        self.books.strong_count()
    }
}

fn audit_page(
    page: PageId,
    recorded: PageState,
    found: PageState,
    listed: u32,
) -> Result<(), AuditError> {
    if recorded.shares != found.shares {
        return Err(AuditError::Shares {
            page,
            recorded: recorded.shares,
            found: found.shares,
        });
    }
    if recorded.cached != found.cached {
        return Err(AuditError::Cached {
            page,
            recorded: recorded.cached,
            found: found.cached,
        });
    }
    let expected = u32::from(found.shares == 0 && !found.cached);
    if listed != expected {
        return Err(AuditError::Free {
            page,
            listed,
            expected,
        });
    }
    Ok(())
}

/// A sequence's share of one page.
#[derive(Debug)]
pub struct PageHandle {
    page: PageId,
    books: Rc<Books>,
}

impl PageHandle {
    #[must_use]
    pub fn id(&self) -> PageId {
        self.page
    }

    fn index(&self) -> usize {
        usize::try_from(self.page.0).unwrap_or(usize::MAX)
    }

    /// Another share of the same page.
    #[must_use]
    pub fn share(&self) -> Self {
        self.books.add_share(self.page);
        Self {
            page: self.page,
            books: Rc::clone(&self.books),
        }
    }

    /// Whether the page may be written: nobody else can see it.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        let state = self.books.state(self.page).get();
        state.shares == 1 && !state.cached
    }

    /// The index's share of this page.
    ///
    /// # Panics
    /// If the index has it already.
    pub(super) fn cache(&self) -> CachedPage {
        let cell = self.books.state(self.page);
        let state = cell.get();
        assert!(!state.cached, "page {:?} is remembered twice", self.page);
        cell.set(PageState {
            cached: true,
            ..state
        });
        CachedPage {
            page: self.page,
            books: Rc::clone(&self.books),
        }
    }
}

impl Drop for PageHandle {
    fn drop(&mut self) {
        self.books.drop_share(self.page);
    }
}

/// The prefix index's share of one page.
#[derive(Debug)]
pub struct CachedPage {
    page: PageId,
    books: Rc<Books>,
}

impl CachedPage {
    pub(super) fn id(&self) -> PageId {
        self.page
    }

    fn index(&self) -> usize {
        usize::try_from(self.page.0).unwrap_or(usize::MAX)
    }

    /// Whether no sequence holds the page.
    pub(super) fn is_idle(&self) -> bool {
        self.books.state(self.page).get().shares == 0
    }

    /// A share for a sequence.
    pub(super) fn share(&self) -> PageHandle {
        self.books.add_share(self.page);
        PageHandle {
            page: self.page,
            books: Rc::clone(&self.books),
        }
    }
}

impl Drop for CachedPage {
    fn drop(&mut self) {
        self.books.drop_cached(self.page);
    }
}

#[cfg(test)]
mod tests;
