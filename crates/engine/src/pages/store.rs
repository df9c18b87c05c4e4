//! Pool and prefix index together: the one place that sequences get pages from.

use std::collections::HashSet;

use relight_protocol::limits::PAGE_TOKENS;

use super::pool::{AuditError, PageHandle, PageId, Pool, PoolWitness};
use super::prefix::{ChainHash, PageMemory, PageTokens, PrefixIndex};
use super::table::{Entry, Found, PageTable};

/// What is already there of a token string.
#[derive(Debug, Default)]
pub struct PrefixHit {
    /// Full pages from the first token on.
    pub pages: Vec<PageHandle>,
    /// A remembered page whose first tokens continue them, and how many of its tokens do.
    pub partial: Option<(PageHandle, usize)>,
}

impl PrefixHit {
    /// Tokens that need not be computed.
    #[must_use]
    pub fn tokens(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |(_page, tokens)| *tokens);
        self.pages.len() * PAGE_TOKENS + partial
    }
}

/// The pages of one engine.
#[derive(Debug)]
pub struct PageStore {
    pool: Pool,
    index: PrefixIndex,
    page_count: u32,
    adopted: u64,
    /// Entries of the table that no engine has written.
    rubbish: u64,
}

impl PageStore {
    /// All pages of `memory`: those that an earlier engine has sealed are remembered, the
    /// others are free. `salt` is the model's fingerprint. No other store may be in use.
    ///
    /// Nothing is taken on trust: an entry must carry its own checksum and hang on a chain
    /// that begins with this model; the page's bytes are checked when they are first used.
    #[must_use]
    pub fn adopt(page_count: u32, salt: u128, memory: &dyn PageMemory) -> Self {
        let table = memory.table();
        let mut index = PrefixIndex::new(salt, table.clone());
        let pool = Pool::new(page_count);
        let (sound, rubbish) = table.map_or_else(Default::default, |table| {
            sound_entries(&table, page_count, index.root())
        });
        let pages: Vec<PageId> = sound.iter().map(|(page, _entry)| *page).collect();
        for (page, (_id, entry)) in pool.cache_free(&pages).into_iter().zip(sound) {
            index.adopt(page, entry);
        }
        Self {
            pool,
            index,
            page_count,
            adopted: pages.len() as u64,
            rubbish,
        }
    }

    /// A store without pages.
    #[must_use]
    pub fn empty(salt: u128) -> Self {
        Self {
            pool: Pool::new(0),
            index: PrefixIndex::new(salt, None),
            page_count: 0,
            adopted: 0,
            rubbish: 0,
        }
    }

    /// Pages of an earlier engine that were there at the start.
    #[must_use]
    pub fn adopted_count(&self) -> u64 {
        self.adopted
    }

    /// Pages and entries of an earlier engine that turned out to be damaged.
    #[must_use]
    pub fn corrupt_count(&self) -> u64 {
        self.rubbish + self.index.corrupt_count()
    }

    #[must_use]
    pub fn total_count(&self) -> usize {
        self.pool.total_count()
    }

    /// Pages that `take` can give: free ones and those that only the index remembers.
    #[must_use]
    pub fn available_count(&self) -> usize {
        self.pool.free_count() + self.pool.idle_count()
    }

    /// Pages that only the index remembers.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.pool.idle_count()
    }

    /// The name before any page.
    #[must_use]
    pub fn root(&self) -> ChainHash {
        self.index.root()
    }

    /// `count` pages that nobody else can see, or none at all.
    pub fn take(&mut self, count: usize) -> Option<Vec<PageHandle>> {
        if self.available_count() < count {
            return None;
        }
        let short = count.saturating_sub(self.pool.free_count());
        self.index.evict(short);
        self.pool.take(count)
    }

    /// How many pages of this chain are there, counted from its start.
    #[must_use]
    pub fn matched_count(&self, chain: &[ChainHash]) -> usize {
        self.index.matched_count(chain)
    }

    /// What is there of the first `limit` tokens of `tokens`, whose full pages are named by
    /// `chain`.
    pub fn lookup(
        &mut self,
        tokens: &[u32],
        chain: &[ChainHash],
        limit: usize,
        memory: &dyn PageMemory,
    ) -> PrefixHit {
        let limit = limit.min(tokens.len());
        let mut pages = Vec::new();
        let mut tail = self.index.root();
        for name in chain.iter().take(limit / PAGE_TOKENS) {
            let Some(page) = self.index.hit(*name, memory) else {
                break;
            };
            pages.push(page);
            tail = *name;
        }
        let rest = tokens.get(pages.len() * PAGE_TOKENS..limit);
        let partial = rest.and_then(|rest| self.index.nearest(tail, rest, memory));
        PrefixHit { pages, partial }
    }

    /// Remembers a page whose step has been confirmed; see [`PrefixIndex::seal`].
    pub fn seal(
        &mut self,
        parent: ChainHash,
        tokens: &PageTokens,
        page: &mut PageHandle,
        memory: &dyn PageMemory,
    ) {
        self.index.seal(parent, tokens, page, memory);
    }

    /// Forgets pages that may hold rubbish; see [`PrefixIndex::distrust`].
    pub fn distrust(&mut self, chain: &[ChainHash]) {
        self.index.distrust(chain);
    }

    /// See [`PoolWitness`].
    #[must_use]
    pub fn witness(&self) -> PoolWitness {
        self.pool.witness()
    }

    /// Proves that the pool is whole, given all handles that sequences hold.
    ///
    /// # Errors
    /// The first page whose books do not balance.
    pub fn audit<'a>(
        &self,
        handles: impl Iterator<Item = &'a PageHandle>,
    ) -> Result<(), AuditError> {
        self.pool.audit(handles, self.index.pages())?;
        self.index.audit(self.page_count)
    }
}

/// The entries of `table` that make chains from `root` on, parents before children, and how
/// many were damaged. All others are cleared.
fn sound_entries(
    table: &PageTable,
    page_count: u32,
    root: ChainHash,
) -> (Vec<(PageId, Entry)>, u64) {
    let mut entries = Vec::new();
    let mut rubbish = 0;
    for page in (0..page_count).map(PageId) {
        match table.read(page) {
            Found::Nothing => {}
            Found::Entry(entry) => entries.push((page, entry)),
            Found::Rubbish => {
                rubbish += 1;
                table.clear(page);
            }
        }
    }
    entries.sort_by_key(|(_page, entry)| entry.number);
    let mut names = HashSet::from([root]);
    entries.retain(|(page, entry)| {
        let name = entry.parent.next(&entry.tokens);
        let is_sound = names.contains(&entry.parent) && names.insert(name);
        if !is_sound {
            table.clear(*page);
        }
        is_sound
    });
    (entries, rubbish)
}

#[cfg(test)]
mod tests;
