use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::pages::{PageId, TableShape};

fn memory_file() -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    File::from(memfd_create("test", flags).unwrap())
}

fn fresh(arena: WeightsArena) -> FreshWeights {
    match arena {
        WeightsArena::Fresh(fresh) => fresh,
        WeightsArena::Sealed(_) => panic!("the arena is not complete"),
    }
}

fn build(file: Option<File>) -> SealedWeights {
    let mut arena = fresh(WeightsArena::open(file, 5, 100).unwrap());
    assert_eq!(arena.tiles().len(), 100);
    arena.tiles().fill(7);
    arena.seal().unwrap()
}

#[test]
fn an_arena_is_built_once_and_then_found_complete() {
    let file = memory_file();
    let built = build(Some(file.try_clone().unwrap()));
    assert_eq!(built.tiles(), [7; 100]);
    match WeightsArena::open(Some(file), 5, 100).unwrap() {
        WeightsArena::Sealed(found) => assert_eq!(found.tiles(), [7; 100]),
        WeightsArena::Fresh(_) => panic!("the arena is complete"),
    }
}

#[test]
fn a_sealed_arena_cannot_be_written() {
    let file = memory_file();
    drop(build(Some(file.try_clone().unwrap())));
    assert!(file.set_len(0).is_err());
    assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err());
}

#[test]
fn an_unfinished_arena_is_built_again() {
    let file = memory_file();
    let mut arena = fresh(WeightsArena::open(Some(file.try_clone().unwrap()), 5, 100).unwrap());
    arena.tiles().fill(7);
    drop(arena);
    let mut again = fresh(WeightsArena::open(Some(file), 5, 100).unwrap());
    assert_eq!(again.tiles(), [0; 100]);
}

#[test]
fn an_arena_of_another_model_is_refused() {
    for (identity, bytes) in [(6, 100), (5, 99)] {
        let file = memory_file();
        drop(build(Some(file.try_clone().unwrap())));
        let refused = WeightsArena::open(Some(file), identity, bytes);
        assert!(matches!(refused, Err(ArenaError::OtherModel)));
    }
}

#[test]
fn private_memory_serves_an_engine_without_a_supervisor() {
    assert_eq!(build(None).tiles(), [7; 100]);
    let mut kv = KvArena::open(None, shape(2)).unwrap();
    assert_eq!(kv.bytes_mut(), [0; 2 * 4096]);
    assert!(kv.table().is_none());
}

fn shape(page_count: usize) -> TableShape {
    TableShape {
        model: 1,
        page_bytes: 4096,
        page_count,
    }
}

#[test]
fn pages_and_their_number_survive_the_engine() {
    let file = memory_file();
    assert_eq!(KvArena::page_count(&file, 4096).unwrap(), None);
    for count in [1, 11, 12, 13, 14, 100] {
        let mut kv = KvArena::open(Some(&file), shape(count)).unwrap();
        assert_eq!(kv.bytes(), count * 4096);
        let last = kv.bytes_mut().len() - 1;
        kv.bytes_mut()[last] = 9;
        drop(kv);
        assert_eq!(KvArena::page_count(&file, 4096).unwrap(), Some(count));
        let again = KvArena::open(Some(&file), shape(count)).unwrap();
        let page = PageId(u32::try_from(count).unwrap() - 1);
        assert_eq!(again.page(page)[4094..], [0, 9]);
        assert_eq!(again.page(page).as_ptr().addr() % 4096, 0);
        assert!(again.page(PageId(page.0 + 1)).is_empty());
    }
}
