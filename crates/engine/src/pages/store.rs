//! Pool and prefix index together: the one place that sequences get pages from.

use relight_protocol::limits::PAGE_TOKENS;

use super::pool::{AuditError, PageHandle, Pool};
use super::prefix::{ChainHash, PageTokens, PrefixIndex};

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
}

impl PageStore {
    #[must_use]
    pub fn new(page_count: u32, salt: u128) -> Self {
        Self {
            pool: Pool::new(page_count),
            index: PrefixIndex::new(salt),
        }
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
    pub fn lookup(&mut self, tokens: &[u32], chain: &[ChainHash], limit: usize) -> PrefixHit {
        let limit = limit.min(tokens.len());
        let mut pages = Vec::new();
        let mut tail = self.index.root();
        for name in chain.iter().take(limit / PAGE_TOKENS) {
            let Some(page) = self.index.hit(*name) else {
                break;
            };
            pages.push(page);
            tail = *name;
        }
        let rest = tokens.get(pages.len() * PAGE_TOKENS..limit);
        let partial = rest.and_then(|rest| self.index.nearest(tail, rest));
        PrefixHit { pages, partial }
    }

    /// Remembers a page whose step has been confirmed; see [`PrefixIndex::seal`].
    pub fn seal(&mut self, parent: ChainHash, tokens: &PageTokens, page: &mut PageHandle) {
        self.index.seal(parent, tokens, page);
    }

    /// Forgets pages that may hold rubbish; see [`PrefixIndex::distrust`].
    pub fn distrust(&mut self, chain: &[ChainHash]) {
        self.index.distrust(chain);
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
        self.index.audit()
    }
}

#[cfg(test)]
mod tests;
