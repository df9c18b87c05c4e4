use super::*;
use crate::seeded::Seeded;

#[test]
fn taking_is_all_or_nothing() {
    let pool = Pool::new(4);
    let three = pool.take(3).unwrap();
    assert!(pool.take(2).is_none());
    assert_eq!(pool.free_count(), 1);
    drop(three);
    assert_eq!(pool.take(4).unwrap().len(), 4);
}

#[test]
fn a_page_is_writable_only_while_nobody_else_sees_it() {
    let pool = Pool::new(1);
    let page = pool.take(1).unwrap().pop().unwrap();
    assert!(page.is_exclusive());
    let other = page.share();
    assert!(!page.is_exclusive());
    drop(other);
    assert!(page.is_exclusive());
    let cached = page.cache();
    assert!(!page.is_exclusive());
    drop(cached);
    assert!(page.is_exclusive());
}

#[test]
fn an_audit_finds_a_handle_that_nobody_accounts_for() {
    let pool = Pool::new(2);
    let pages = pool.take(1).unwrap();
    assert_eq!(pool.audit(pages.iter(), std::iter::empty()), Ok(()));
    assert_eq!(
        pool.audit(std::iter::empty(), std::iter::empty()),
        Err(AuditError::Shares {
            page: PageId(0),
            recorded: 1,
            found: 0
        })
    );
}

/// Random takes, shares, drops, caches and evictions; the audit holds after each.
#[test]
fn the_books_balance_after_any_operations() {
    for seed in 0..50 {
        let mut random = Seeded::new(seed);
        let pool = Pool::new(8);
        let mut handles: Vec<PageHandle> = Vec::new();
        let mut cached: Vec<CachedPage> = Vec::new();
        for step in 0..400 {
            match random.below(6) {
                0 => {
                    let wanted = random.below(4);
                    let free = pool.free_count();
                    match pool.take(wanted) {
                        Some(pages) => {
                            assert_eq!(pages.len(), wanted);
                            assert!(pages.iter().all(PageHandle::is_exclusive));
                            handles.extend(pages);
                        }
                        None => assert!(free < wanted),
                    }
                }
                1 if !handles.is_empty() => {
                    handles.push(handles[random.below(handles.len())].share());
                }
                2 if !handles.is_empty() => {
                    handles.swap_remove(random.below(handles.len()));
                }
                3 if !handles.is_empty() => {
                    let handle = &handles[random.below(handles.len())];
                    if cached.iter().all(|page| page.id() != handle.id()) {
                        cached.push(handle.cache());
                    }
                }
                4 if !cached.is_empty() => {
                    cached.swap_remove(random.below(cached.len()));
                }
                _ if !cached.is_empty() => {
                    handles.push(cached[random.below(cached.len())].share());
                }
                _ => {}
            }
            let audit = pool.audit(handles.iter(), cached.iter());
            assert_eq!(audit, Ok(()), "seed {seed}, step {step}");
        }
        drop(handles);
        drop(cached);
        assert_eq!(pool.free_count(), 8, "seed {seed}");
    }
}
