//! Which full pages are already there, by the tokens they were computed from.
//!
//! A page's name is a hash over its own tokens and the name of the page before it, so equal
//! names mean equal prefixes from the first token on, and the index is a tree:
//!
//! ```text
//!   root ──> [t0..t63] ──> [t64..t127] ──> ...
//!                     └──> [u64..u127]
//! ```
//!
//! Every sequence that holds a page also holds all pages before it, so a page that nobody
//! holds has no held page behind it and the tree can be pruned from its leaves.
//!
//! Where pages outlive the engine, the index keeps their table in step with itself: an entry
//! is there exactly as long as its node. The index of the next engine starts from the table,
//! and looks at a page's bytes when it is first asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use relight_protocol::limits::PAGE_TOKENS;
use sha2::{Digest, Sha256};

use super::pool::{AuditError, CachedPage, PageHandle, PageId};
use super::table::{Entry, PageTable};

/// The bytes of pages, as far as their owners need to know them.
pub trait PageMemory {
    /// Checksum of a page; see [`super::checksum`].
    fn checksum(&self, page: PageId) -> u64;

    /// Where it is written down what the pages hold; none if they end with this process.
    fn table(&self) -> Option<Arc<PageTable>>;
}

/// The tokens of one full page.
pub type PageTokens = [u32; PAGE_TOKENS];

/// Name of a page: the first 128 bits of SHA-256 over the name of the page before it and
/// its own tokens. Prompts come from strangers who gain from a collision, hence a
/// cryptographic hash; it costs a microsecond per page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainHash(u128);

impl ChainHash {
    /// The name before the first page. `salt` is the model's fingerprint.
    #[must_use]
    pub fn root(salt: u128) -> Self {
        Self(salt)
    }

    /// The name of the page with these tokens behind this one.
    #[must_use]
    pub fn next(self, tokens: &PageTokens) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0.to_le_bytes());
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        let digest: [u8; 32] = hasher.finalize().into();
        let mut name = [0; 16];
        name.copy_from_slice(digest.first_chunk::<16>().unwrap_or(&[0; 16]));
        Self(u128::from_le_bytes(name))
    }

    pub(super) fn bits(self) -> u128 {
        self.0
    }

    pub(super) fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

#[derive(Debug)]
struct Node {
    page: CachedPage,
    parent: ChainHash,
    tokens: Box<PageTokens>,
    children: usize,
    /// When it was last sealed or hit, in calls of this index.
    used: u64,
    /// What the bytes of an adopted page must sum up to, as long as nobody has looked.
    unchecked: Option<u64>,
}

/// The tree of remembered pages.
#[derive(Debug)]
pub struct PrefixIndex {
    root: ChainHash,
    nodes: HashMap<ChainHash, Node>,
    /// The same nodes ordered by (parent, tokens): the neighbours of a token string in this
    /// order are those that share most of it.
    siblings: BTreeMap<(ChainHash, Box<PageTokens>), ChainHash>,
    /// Nodes without children, the one least recently used first.
    leaves: BTreeSet<(u64, ChainHash)>,
    clock: u64,
    table: Option<Arc<PageTable>>,
    corrupt: u64,
}

impl PrefixIndex {
    /// An index without pages; what it remembers is noted in `table`, which must be empty.
    #[must_use]
    pub fn new(salt: u128, table: Option<Arc<PageTable>>) -> Self {
        Self {
            root: ChainHash::root(salt),
            nodes: HashMap::new(),
            siblings: BTreeMap::new(),
            leaves: BTreeSet::new(),
            clock: 0,
            table,
            corrupt: 0,
        }
    }

    /// Takes on a page that an earlier engine has sealed as `entry`, and whose parent is
    /// there and itself not there yet.
    pub(super) fn adopt(&mut self, page: CachedPage, entry: Entry) {
        self.clock = self.clock.max(entry.number);
        let node = Node {
            page,
            parent: entry.parent,
            tokens: entry.tokens,
            children: 0,
            used: entry.number,
            unchecked: Some(entry.checksum),
        };
        self.insert(entry.parent.next(&node.tokens), node);
    }

    /// Pages whose bytes were not those that were sealed.
    #[must_use]
    pub fn corrupt_count(&self) -> u64 {
        self.corrupt
    }

    /// The name before any page.
    #[must_use]
    pub fn root(&self) -> ChainHash {
        self.root
    }

    /// How many pages of this chain are there, counted from its start.
    #[must_use]
    pub fn matched_count(&self, chain: &[ChainHash]) -> usize {
        chain
            .iter()
            .take_while(|name| self.nodes.contains_key(name))
            .count()
    }

    /// A share of the page with this name; marks it as used. An adopted page whose bytes are
    /// not those that were sealed is forgotten instead, with all that stands behind it.
    pub fn hit(&mut self, name: ChainHash, memory: &dyn PageMemory) -> Option<PageHandle> {
        if !self.check(name, memory) {
            return None;
        }
        self.touch(name);
        Some(self.nodes.get(&name)?.page.share())
    }

    fn check(&mut self, name: ChainHash, memory: &dyn PageMemory) -> bool {
        let Some(node) = self.nodes.get_mut(&name) else {
            return false;
        };
        let Some(sealed) = node.unchecked else {
            return true;
        };
        if memory.checksum(node.page.id()) == sealed {
            node.unchecked = None;
            return true;
        }
        tracing::warn!(page = ?node.page.id(), "a page is not what was sealed");
        self.corrupt += 1;
        self.forget_tree(name);
        false
    }

    /// The remembered page behind `parent` that shares most of its first tokens with
    /// `tokens`, and how many; marks it as used. `None` if not even one is shared.
    pub fn nearest(
        &mut self,
        parent: ChainHash,
        tokens: &[u32],
        memory: &dyn PageMemory,
    ) -> Option<(PageHandle, usize)> {
        // Ends: a page that cannot be had is forgotten.
        loop {
            let (shared, name) = self.neighbour(parent, tokens)?;
            if let Some(page) = self.hit(name, memory) {
                return Some((page, shared));
            }
        }
    }

    fn neighbour(&self, parent: ChainHash, tokens: &[u32]) -> Option<(usize, ChainHash)> {
        let mut wanted = Box::new([0; PAGE_TOKENS]);
        for (slot, token) in wanted.iter_mut().zip(tokens) {
            *slot = *token;
        }
        let key = (parent, wanted);
        let before = self.siblings.range(..&key).next_back();
        let after = self.siblings.range(&key..).next();
        let (shared, name) = before
            .into_iter()
            .chain(after)
            .filter(|((other, _tokens), _name)| *other == parent)
            .map(|((_parent, other), name)| (shared_count(other.as_slice(), tokens), *name))
            .max()?;
        (shared > 0).then_some((shared, name))
    }

    /// Remembers `page`, whose step has been confirmed, as `tokens` behind `parent`. If the
    /// index has such a page already, `page` becomes a share of that one: equal tokens mean
    /// equal bytes, and one copy is enough.
    pub fn seal(
        &mut self,
        parent: ChainHash,
        tokens: &PageTokens,
        page: &mut PageHandle,
        memory: &dyn PageMemory,
    ) {
        let name = parent.next(tokens);
        if let Some(known) = self.hit(name, memory) {
            *page = known;
            return;
        }
        let is_anchored = parent == self.root || self.nodes.contains_key(&parent);
        assert!(
            is_anchored,
            "a page is sealed before the one in front of it"
        );
        let cached = page.cache();
        self.clock += 1;
        if let Some(table) = &self.table {
            let entry = Entry {
                parent,
                tokens: Box::new(*tokens),
                checksum: memory.checksum(cached.id()),
                number: self.clock,
            };
            table.seal(cached.id(), &entry);
        }
        let node = Node {
            page: cached,
            parent,
            tokens: Box::new(*tokens),
            children: 0,
            used: self.clock,
            unchecked: None,
        };
        self.insert(name, node);
    }

    fn insert(&mut self, name: ChainHash, node: Node) {
        if let Some(parent) = self.nodes.get_mut(&node.parent) {
            if parent.children == 0 {
                self.leaves.remove(&(parent.used, node.parent));
            }
            parent.children += 1;
        }
        self.siblings
            .insert((node.parent, node.tokens.clone()), name);
        self.leaves.insert((node.used, name));
        self.nodes.insert(name, node);
    }

    /// Forgets idle pages, leaves first and least recently used first, until `count` are
    /// free or no idle one is left. Returns how many it forgot.
    pub fn evict(&mut self, count: usize) -> usize {
        let mut evicted = 0;
        while evicted < count {
            let idle = self
                .leaves
                .iter()
                .find(|(_used, name)| self.nodes.get(name).is_some_and(|node| node.page.is_idle()));
            let Some(&(_used, name)) = idle else {
                break;
            };
            self.forget(name);
            evicted += 1;
        }
        evicted
    }

    /// Forgets the pages of a chain from its end on, as far as nobody holds them.
    pub fn distrust(&mut self, chain: &[ChainHash]) {
        for name in chain.iter().rev() {
            let Some(node) = self.nodes.get(name) else {
                continue;
            };
            if node.children > 0 || !node.page.is_idle() {
                return;
            }
            self.forget(*name);
        }
    }

    /// Forgets a page and all behind it. Nobody holds any of them.
    fn forget_tree(&mut self, name: ChainHash) {
        let mut names = vec![name];
        let mut seen = 0;
        while let Some(parent) = names.get(seen).copied() {
            let first = (parent, Box::new([0; PAGE_TOKENS]));
            let behind = self.siblings.range(first..);
            let behind = behind.take_while(|((other, _tokens), _name)| *other == parent);
            names.extend(behind.map(|(_key, name)| *name));
            seen += 1;
        }
        for name in names.iter().rev() {
            self.forget(*name);
        }
    }

    /// The one way out of the index. The page may be written from here on, so its entry in
    /// the table goes first.
    fn forget(&mut self, name: ChainHash) {
        let Some(node) = self.nodes.remove(&name) else {
            return;
        };
        if let Some(table) = &self.table {
            table.clear(node.page.id());
        }
        self.leaves.remove(&(node.used, name));
        self.siblings.remove(&(node.parent, node.tokens));
        if let Some(parent) = self.nodes.get_mut(&node.parent) {
            parent.children -= 1;
            if parent.children == 0 {
                self.leaves.insert((parent.used, node.parent));
            }
        }
    }

    fn touch(&mut self, name: ChainHash) {
        let Some(node) = self.nodes.get_mut(&name) else {
            return;
        };
        self.clock += 1;
        let before = std::mem::replace(&mut node.used, self.clock);
        if node.children == 0 {
            self.leaves.remove(&(before, name));
            self.leaves.insert((self.clock, name));
        }
    }

    /// All remembered pages, for the pool's audit.
    pub(super) fn pages(&self) -> impl Iterator<Item = &CachedPage> {
        self.siblings
            .values()
            .filter_map(|name| self.nodes.get(name))
            .map(|node| &node.page)
    }

    /// Checks what makes pruning from the leaves sound: every node hangs on a chain that is
    /// wholly there, an idle node has no held one behind it, and an unchecked one is idle.
    /// Checks also that the table has the entries of these nodes and no others.
    pub(super) fn audit(&self, page_count: u32) -> Result<(), AuditError> {
        for name in self.siblings.values() {
            let Some(node) = self.nodes.get(name) else {
                continue;
            };
            let parent = self.nodes.get(&node.parent);
            let is_sound = match parent {
                None => node.parent == self.root,
                Some(parent) => {
                    let is_checked = node.unchecked.is_none();
                    (node.page.is_idle() || !parent.page.is_idle())
                        && (parent.unchecked.is_none() || !is_checked)
                }
            };
            let is_sound = is_sound && (node.unchecked.is_none() || node.page.is_idle());
            let is_leaf = self.leaves.contains(&(node.used, *name));
            if !is_sound || is_leaf != (node.children == 0) {
                return Err(AuditError::Orphan {
                    page: node.page.id(),
                });
            }
        }
        self.audit_table(page_count)
    }

    fn audit_table(&self, page_count: u32) -> Result<(), AuditError> {
        let Some(table) = &self.table else {
            return Ok(());
        };
        let sealed: HashSet<PageId> = self.pages().map(CachedPage::id).collect();
        for page in (0..page_count).map(PageId) {
            let (expected, found) = (sealed.contains(&page), table.is_sealed(page));
            if expected != found {
                return Err(AuditError::Sealed {
                    page,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}

/// Length of the common prefix.
fn shared_count(left: &[u32], right: &[u32]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

#[cfg(test)]
mod tests;
