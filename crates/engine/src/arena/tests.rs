use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

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
    let mut kv = KvArena::open(None, 256).unwrap();
    assert_eq!(kv.elements(), [0; 128]);
}

#[test]
fn the_number_of_pages_survives_the_engine() {
    let file = memory_file();
    assert_eq!(KvArena::page_count(&file, 128).unwrap(), None);
    let mut kv = KvArena::open(Some(&file), 3 * 128).unwrap();
    kv.elements()[5] = 9;
    drop(kv);
    assert_eq!(KvArena::page_count(&file, 128).unwrap(), Some(3));
    let mut again = KvArena::open(Some(&file), 3 * 128).unwrap();
    assert_eq!(again.elements()[5], 9);
}
