mod survival;

use std::collections::{HashMap, HashSet};

use super::*;
use crate::pages::test_memory::TestMemory;
use crate::seeded::Seeded;

/// A token string with its pages, as a sequence would hold it.
struct Holder {
    tokens: Vec<u32>,
    pages: Vec<PageHandle>,
}

fn chain_of(root: ChainHash, tokens: &[u32]) -> Vec<ChainHash> {
    let (pages, _rest) = tokens.as_chunks::<PAGE_TOKENS>();
    pages
        .iter()
        .scan(root, |name, tokens| {
            *name = name.next(tokens);
            Some(*name)
        })
        .collect()
}

/// Few distinct tokens and long runs, so that prefixes are shared often.
fn random_tokens(random: &mut Seeded) -> Vec<u32> {
    let mut tokens = Vec::new();
    for _run in 0..1 + random.below(4) {
        let token = u32::from(random.one_in(2));
        let length = [13, 64, 64, 90][random.below(4)];
        tokens.extend(std::iter::repeat_n(token, length));
    }
    tokens
}

/// What every page holds, known from outside: the model that the store is compared with.
#[derive(Default)]
struct Contents(HashMap<u32, Vec<u32>>);

impl Contents {
    fn check_hit(&self, hit: &PrefixHit, tokens: &[u32]) {
        for (index, page) in hit.pages.iter().enumerate() {
            let end = (index + 1) * PAGE_TOKENS;
            assert_eq!(self.0[&page.id().0], tokens[..end]);
        }
        if let Some((page, shared)) = &hit.partial {
            let start = hit.pages.len() * PAGE_TOKENS;
            assert_eq!(
                self.0[&page.id().0][..start + shared],
                tokens[..start + shared]
            );
        }
    }
}

fn run_step(
    random: &mut Seeded,
    (store, memory): (&mut PageStore, &TestMemory),
    holders: &mut Vec<Holder>,
    contents: &mut Contents,
) {
    if random.one_in(3) && !holders.is_empty() {
        holders.swap_remove(random.below(holders.len()));
        return;
    }
    let tokens = random_tokens(random);
    let chain = chain_of(store.root(), &tokens);
    let limit = random.below(tokens.len() + 1);
    let mut hit = store.lookup(&tokens, &chain, limit, memory);
    assert!(hit.tokens() <= limit);
    contents.check_hit(&hit, &tokens);
    hit.partial = None;
    let known = hit.pages.len();
    let missing = tokens.len().div_ceil(PAGE_TOKENS) - known;
    let available = store.available_count();
    let Some(fresh) = store.take(missing) else {
        assert!(available < missing);
        return;
    };
    let mut pages = hit.pages;
    pages.extend(fresh);
    let mut parent = store.root();
    for (index, page_tokens) in tokens.as_chunks::<PAGE_TOKENS>().0.iter().enumerate() {
        let page = &mut pages[index];
        if index >= known {
            assert!(page.is_exclusive());
            let end = (index + 1) * PAGE_TOKENS;
            contents.0.insert(page.id().0, tokens[..end].to_vec());
            store.seal(parent, page_tokens, page, memory);
        }
        parent = chain[index];
    }
    holders.push(Holder { tokens, pages });
}

#[test]
fn the_store_agrees_with_a_naive_model() {
    for seed in 0..60 {
        let mut random = Seeded::new(seed);
        let memory = TestMemory::private(12);
        let mut store = PageStore::adopt(12, 1, &memory);
        let mut holders = Vec::new();
        let mut contents = Contents::default();
        for step in 0..200 {
            run_step(
                &mut random,
                (&mut store, &memory),
                &mut holders,
                &mut contents,
            );
            let handles = holders.iter().flat_map(|holder| &holder.pages);
            assert_eq!(store.audit(handles), Ok(()), "seed {seed}, step {step}");
            for holder in &holders {
                let chain = chain_of(store.root(), &holder.tokens);
                assert_eq!(store.matched_count(&chain), chain.len(), "seed {seed}");
            }
            let held: HashSet<_> = holders
                .iter()
                .flat_map(|holder| holder.pages.iter().map(PageHandle::id))
                .collect();
            assert_eq!(store.available_count(), 12 - held.len(), "seed {seed}");
        }
    }
}
