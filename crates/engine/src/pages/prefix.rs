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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use relight_protocol::limits::PAGE_TOKENS;
use sha2::{Digest, Sha256};

use super::pool::{AuditError, CachedPage, PageHandle};

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
}

#[derive(Debug)]
struct Node {
    page: CachedPage,
    parent: ChainHash,
    tokens: Box<PageTokens>,
    children: usize,
    /// When it was last sealed or hit, in calls of this index.
    used: u64,
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
}

impl PrefixIndex {
    #[must_use]
    pub fn new(salt: u128) -> Self {
        Self {
            root: ChainHash::root(salt),
            nodes: HashMap::new(),
            siblings: BTreeMap::new(),
            leaves: BTreeSet::new(),
            clock: 0,
        }
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

    /// A share of the page with this name; marks it as used.
    pub fn hit(&mut self, name: ChainHash) -> Option<PageHandle> {
        self.touch(name);
        Some(self.nodes.get(&name)?.page.share())
    }

    /// The remembered page behind `parent` that shares most of its first tokens with
    /// `tokens`, and how many; marks it as used. `None` if not even one is shared.
    pub fn nearest(&mut self, parent: ChainHash, tokens: &[u32]) -> Option<(PageHandle, usize)> {
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
        if shared == 0 {
            return None;
        }
        Some((self.hit(name)?, shared))
    }

    /// Remembers `page`, whose step has been confirmed, as `tokens` behind `parent`. If the
    /// index has such a page already, `page` becomes a share of that one: equal tokens mean
    /// equal bytes, and one copy is enough.
    pub fn seal(&mut self, parent: ChainHash, tokens: &PageTokens, page: &mut PageHandle) {
        let name = parent.next(tokens);
        if let Some(known) = self.hit(name) {
            *page = known;
            return;
        }
        let is_anchored = parent == self.root || self.nodes.contains_key(&parent);
        assert!(
            is_anchored,
            "a page is sealed before the one in front of it"
        );
        let cached = page.cache();
        if let Some(node) = self.nodes.get_mut(&parent) {
            if node.children == 0 {
                self.leaves.remove(&(node.used, parent));
            }
            node.children += 1;
        }
        self.clock += 1;
        let node = Node {
            page: cached,
            parent,
            tokens: Box::new(*tokens),
            children: 0,
            used: self.clock,
        };
        self.siblings.insert((parent, node.tokens.clone()), name);
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

    fn forget(&mut self, name: ChainHash) {
        let Some(node) = self.nodes.remove(&name) else {
            return;
        };
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
    /// wholly there, and an idle node has no held one behind it.
    pub(super) fn audit(&self) -> Result<(), AuditError> {
        for name in self.siblings.values() {
            let Some(node) = self.nodes.get(name) else {
                continue;
            };
            let parent = self.nodes.get(&node.parent);
            let is_sound = match parent {
                None => node.parent == self.root,
                Some(parent) => node.page.is_idle() || !parent.page.is_idle(),
            };
            let is_leaf = self.leaves.contains(&(node.used, *name));
            if !is_sound || is_leaf != (node.children == 0) {
                return Err(AuditError::Orphan {
                    page: node.page.id(),
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
