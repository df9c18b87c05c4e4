//! Stores that die at any operation, and what the next one finds.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::pages::table::Found;
use crate::pages::test_memory::{MODEL, TestMemory};
use crate::pages::{TableShape, injected};

const PAGES: u32 = 10;

/// One engine's life: a store, and sequences that hold pages.
struct Life<'a> {
    store: PageStore,
    memory: &'a TestMemory,
    holders: Vec<Vec<PageHandle>>,
}

impl<'a> Life<'a> {
    fn new(memory: &'a TestMemory) -> Self {
        Self {
            store: PageStore::adopt(PAGES, MODEL, memory),
            memory,
            holders: Vec::new(),
        }
    }

    fn act(&mut self, random: &mut Seeded) {
        match random.below(8) {
            0..3 if !self.holders.is_empty() => {
                let index = random.below(self.holders.len());
                self.holders.swap_remove(index);
            }
            3 => {
                let chain = chain_of(self.store.root(), &random_tokens(random));
                self.store.distrust(&chain);
            }
            _ => self.compute(random),
        }
        self.audit();
    }

    fn audit(&self) {
        let held = self.holders.iter().flatten();
        assert_eq!(self.store.audit(held), Ok(()));
    }

    /// A step that computes a whole sequence, or fails before it is confirmed.
    fn compute(&mut self, random: &mut Seeded) {
        let tokens = random_tokens(random);
        let chain = chain_of(self.store.root(), &tokens);
        let memory = self.memory;
        let mut hit = self.store.lookup(&tokens, &chain, tokens.len(), memory);
        for (index, page) in hit.pages.iter().enumerate() {
            assert!(memory.holds(page.id(), &tokens[..(index + 1) * PAGE_TOKENS]));
        }
        hit.partial = None;
        let known = hit.pages.len();
        let missing = tokens.len().div_ceil(PAGE_TOKENS) - known;
        let Some(fresh) = self.store.take(missing) else {
            return;
        };
        let mut pages = hit.pages;
        pages.extend(fresh);
        for (index, page) in pages.iter().enumerate().skip(known) {
            let end = tokens.len().min((index + 1) * PAGE_TOKENS);
            memory.write(page.id(), &tokens[..end]);
        }
        if random.one_in(4) {
            return;
        }
        let (full, _rest) = tokens.as_chunks::<PAGE_TOKENS>();
        for (index, page_tokens) in full.iter().enumerate().skip(known) {
            let parent = index.checked_sub(1).map(|before| chain[before]);
            let parent = parent.unwrap_or_else(|| self.store.root());
            let page = &mut pages[index];
            self.store.seal(parent, page_tokens, page, memory);
        }
        self.holders.push(pages);
    }
}

/// The tokens from the first on, of every page that the table has.
fn sealed_prefixes(memory: &TestMemory) -> BTreeMap<PageId, Vec<u32>> {
    let table = memory.table().unwrap();
    let entries: HashMap<ChainHash, (PageId, Entry)> = (0..PAGES)
        .map(PageId)
        .filter_map(|page| match table.read(page) {
            Found::Entry(entry) => Some((entry.parent.next(&entry.tokens), (page, entry))),
            Found::Nothing => None,
            Found::Rubbish => panic!("{page:?} was left half written"),
        })
        .collect();
    let prefix_of = |(page, entry): &(PageId, Entry)| {
        let mut tokens = entry.tokens.to_vec();
        let mut parent = entry.parent;
        while parent != ChainHash::root(MODEL) {
            let (_page, before) = &entries[&parent];
            tokens.splice(0..0, before.tokens.iter().copied());
            parent = before.parent;
        }
        (*page, tokens)
    };
    entries.values().map(prefix_of).collect()
}

/// Lives in `memory` until it dies at an operation that chance names. Returns whether it did.
fn live_and_die(memory: &TestMemory, random: &mut Seeded) -> bool {
    injected::die_after(Some(random.below(900) as u64));
    let died = catch_unwind(AssertUnwindSafe(|| {
        let mut life = Life::new(memory);
        for _act in 0..25 {
            life.act(random);
        }
    }));
    injected::die_after(None);
    died.is_err()
}

/// Whatever a store had done when it died, the next one finds the state of exactly the
/// tokens that the table says, in every page of it.
#[test]
fn a_store_may_die_at_any_operation() {
    let (mut deaths, mut adopted) = (0, 0);
    for seed in 0..150 {
        let mut random = Seeded::new(seed);
        let mut memory = TestMemory::lasting(PAGES);
        for life in 0..8 {
            deaths += usize::from(live_and_die(&memory, &mut random));
            let prefixes = sealed_prefixes(&memory);
            for (page, tokens) in &prefixes {
                assert!(memory.holds(*page, tokens), "seed {seed}, life {life}");
            }
            memory = memory.reopened(MODEL);
            let mut next = Life::new(&memory);
            next.audit();
            assert_eq!(next.store.adopted_count(), prefixes.len() as u64);
            assert_eq!(next.store.corrupt_count(), 0, "seed {seed}, life {life}");
            for (page, tokens) in &prefixes {
                let chain = chain_of(next.store.root(), tokens);
                let hit = next.store.lookup(tokens, &chain, tokens.len(), &memory);
                assert_eq!(hit.pages.last().map(PageHandle::id), Some(*page));
            }
            adopted += prefixes.len();
        }
    }
    assert!(deaths > 500, "{deaths} deaths");
    assert!(adopted > 3000, "{adopted} pages were adopted");
}

/// A damaged page or entry is never given out, and costs no more than what stands behind it.
#[test]
fn damage_is_noticed_before_a_page_is_used() {
    let mut noticed = 0;
    for seed in 0..300 {
        let mut random = Seeded::new(1000 + seed);
        let memory = TestMemory::lasting(PAGES);
        let mut life = Life::new(&memory);
        for _act in 0..25 {
            life.act(&mut random);
        }
        drop(life);
        let before = sealed_prefixes(&memory);
        let Some(victim) = before
            .keys()
            .copied()
            .nth(random.below(before.len().max(1)))
        else {
            continue;
        };
        if random.one_in(2) {
            memory.flip_bit_of_page(victim, &mut random);
        } else {
            let start = TableShape::bytes(victim.0 as usize);
            let bit = random.below(8 * (TableShape::ENTRY_BYTES - 24));
            memory.damage_table(|table| table[start + bit / 8] ^= 1 << (bit % 8));
        }
        let memory = memory.reopened(MODEL);
        let mut next = Life::new(&memory);
        next.audit();
        for tokens in before.values() {
            let is_behind = tokens.starts_with(&before[&victim]);
            let chain = chain_of(next.store.root(), tokens);
            let hit = next.store.lookup(tokens, &chain, tokens.len(), &memory);
            assert_eq!(hit.pages.len() == chain.len(), !is_behind, "seed {seed}");
            for (index, page) in hit.pages.iter().enumerate() {
                assert!(memory.holds(page.id(), &tokens[..(index + 1) * PAGE_TOKENS]));
            }
        }
        noticed += next.store.corrupt_count();
        for _act in 0..25 {
            next.act(&mut random);
        }
    }
    assert!(noticed > 200, "{noticed} times");
}

#[test]
fn rubbish_and_the_table_of_another_model_are_an_empty_start() {
    for seed in 0..20 {
        let mut random = Seeded::new(2000 + seed);
        let memory = TestMemory::lasting(PAGES);
        let mut life = Life::new(&memory);
        for _act in 0..25 {
            life.act(&mut random);
        }
        drop(life);
        assert!(!sealed_prefixes(&memory).is_empty(), "seed {seed}");
        let is_other_model = seed % 2 == 0;
        if !is_other_model {
            memory.damage_table(|table| {
                for byte in table {
                    *byte = random.next().to_le_bytes()[0];
                }
            });
        }
        let memory = memory.reopened(MODEL + u128::from(is_other_model));
        let store = PageStore::adopt(PAGES, MODEL + u128::from(is_other_model), &memory);
        assert_eq!(store.adopted_count(), 0);
        assert_eq!(store.available_count(), PAGES as usize);
        assert_eq!(store.idle_count(), 0);
        assert_eq!(store.audit(std::iter::empty()), Ok(()));
    }
}
