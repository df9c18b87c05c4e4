use super::*;
use crate::pages::Pool;
use crate::pages::test_memory::TestMemory;

fn page_of(first: u32) -> PageTokens {
    let mut tokens = [0; PAGE_TOKENS];
    for (slot, token) in tokens.iter_mut().zip(first..) {
        *slot = token;
    }
    tokens
}

fn memory() -> TestMemory {
    TestMemory::private(8)
}

/// Seals a chain of pages and lets go of them.
fn remember(index: &mut PrefixIndex, pool: &Pool, pages: &[PageTokens]) -> Vec<ChainHash> {
    let mut chain = Vec::new();
    let mut parent = index.root();
    let mut held = pool.take(pages.len()).unwrap();
    for (tokens, page) in pages.iter().zip(&mut held) {
        index.seal(parent, tokens, page, &memory());
        parent = parent.next(tokens);
        chain.push(parent);
    }
    chain
}

#[test]
fn equal_tokens_behind_different_pages_have_different_names() {
    let root = ChainHash::root(7);
    let same = page_of(1);
    assert_ne!(root.next(&page_of(2)).next(&same), root.next(&same));
    assert_ne!(ChainHash::root(8).next(&same), root.next(&same));
}

#[test]
fn sealing_what_is_known_gives_the_known_page_and_frees_the_copy() {
    let pool = Pool::new(4);
    let mut index = PrefixIndex::new(0, None);
    let mut first = pool.take(1).unwrap().pop().unwrap();
    index.seal(index.root(), &page_of(1), &mut first, &memory());
    let mut second = pool.take(1).unwrap().pop().unwrap();
    assert_ne!(first.id(), second.id());
    index.seal(index.root(), &page_of(1), &mut second, &memory());
    assert_eq!(first.id(), second.id());
    assert_eq!(pool.free_count(), 3);
}

#[test]
fn the_nearest_page_is_the_one_that_shares_most() {
    let pool = Pool::new(8);
    let mut index = PrefixIndex::new(0, None);
    let root = index.root();
    let mut pages = Vec::new();
    for shared in [0, 10, 40, 63] {
        let mut tokens = page_of(1000);
        for token in &mut tokens[shared..] {
            *token += 5;
        }
        remember(&mut index, &pool, &[tokens]);
        pages.push((shared, tokens));
    }
    let wanted = page_of(1000);
    assert_eq!(index.nearest(root, &wanted, &memory()).unwrap().1, 63);
    assert_eq!(index.nearest(root, &wanted[..30], &memory()).unwrap().1, 30);
    let mut other = wanted;
    other[40] += 5;
    other[41] = 0;
    assert_eq!(index.nearest(root, &other, &memory()).unwrap().1, 41);
    assert!(index.nearest(root, &[999], &memory()).is_none());
    assert!(
        index
            .nearest(root.next(&wanted), &wanted, &memory())
            .is_none()
    );
}

#[test]
fn pages_are_forgotten_from_the_tail_of_the_chain_least_recently_used() {
    let pool = Pool::new(8);
    let mut index = PrefixIndex::new(0, None);
    let old = remember(&mut index, &pool, &[page_of(1), page_of(2), page_of(3)]);
    let new = remember(&mut index, &pool, &[page_of(4), page_of(5)]);
    drop(index.hit(old[0], &memory()));
    assert_eq!(index.evict(1), 1);
    assert_eq!(index.matched_count(&old), 2);
    assert_eq!(index.evict(1), 1);
    assert_eq!(
        (index.matched_count(&old), index.matched_count(&new)),
        (1, 2)
    );
    assert_eq!(index.evict(2), 2);
    assert_eq!(
        (index.matched_count(&old), index.matched_count(&new)),
        (1, 0)
    );
    assert_eq!(index.evict(5), 1);
    assert_eq!(pool.free_count(), 8);
}

#[test]
fn held_pages_are_not_forgotten() {
    let pool = Pool::new(4);
    let mut index = PrefixIndex::new(0, None);
    let chain = remember(&mut index, &pool, &[page_of(1), page_of(2)]);
    let held: Vec<_> = chain
        .iter()
        .map(|name| index.hit(*name, &memory()).unwrap())
        .collect();
    assert_eq!(index.evict(4), 0);
    drop(held);
    assert_eq!(index.evict(4), 2);
}
