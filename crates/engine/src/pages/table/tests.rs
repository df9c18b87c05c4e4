use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

const SHAPE: TableShape = TableShape {
    model: 5,
    page_bytes: 4096,
    page_count: 3,
};

fn file() -> File {
    let file = File::from(memfd_create("table", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(TableShape::bytes(8) as u64).unwrap();
    file
}

fn open(file: &File, shape: TableShape) -> PageTable {
    let words = TableShape::bytes(8) / size_of::<u64>();
    PageTable::open(SharedWords::map(file, words, "table").unwrap(), shape)
}

fn entry() -> Entry {
    let mut tokens = Box::new([0; PAGE_TOKENS]);
    for (token, value) in tokens.iter_mut().zip(u32::MAX - 70..) {
        *token = value;
    }
    Entry {
        parent: ChainHash::from_bits(u128::MAX - 3),
        tokens,
        checksum: 11,
        number: 12,
    }
}

#[test]
fn an_entry_is_there_until_it_is_cleared() {
    let file = file();
    let table = open(&file, SHAPE);
    let page = PageId(1);
    assert_eq!(table.read(page), Found::Nothing);
    table.seal(page, &entry());
    assert!(table.is_sealed(page) && !table.is_sealed(PageId(2)));
    assert_eq!(open(&file, SHAPE).read(page), Found::Entry(entry()));
    table.clear(page);
    assert_eq!(table.read(page), Found::Nothing);
    assert_eq!(table.read(PageId(99)), Found::Nothing);
}

#[test]
fn an_entry_with_any_bit_flipped_or_in_another_place_is_none() {
    let file = file();
    let table = open(&file, SHAPE);
    table.seal(PageId(1), &entry());
    let start = TableShape::bytes(1) as u64;
    let mut bytes = [0; USED_WORDS * 8];
    file.read_exact_at(&mut bytes, start).unwrap();
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        file.write_all_at(&damaged, start).unwrap();
        assert_eq!(table.read(PageId(1)), Found::Rubbish, "bit {bit}");
    }
    let other = TableShape::bytes(2) as u64;
    file.write_all_at(&bytes, other).unwrap();
    assert_eq!(table.read(PageId(2)), Found::Rubbish);
}

#[test]
fn another_shape_empties_the_table() {
    let others = [
        TableShape { model: 6, ..SHAPE },
        TableShape {
            page_bytes: 8192,
            ..SHAPE
        },
        TableShape {
            page_count: 2,
            ..SHAPE
        },
    ];
    for other in others {
        let file = file();
        open(&file, SHAPE).seal(PageId(1), &entry());
        assert!(open(&file, SHAPE).is_sealed(PageId(1)));
        assert!(!open(&file, other).is_sealed(PageId(1)));
        assert!(!open(&file, SHAPE).is_sealed(PageId(1)));
    }
}

/// Wherever the emptying of a table ends, no entry of the old owner is there for the new one.
#[test]
fn a_death_while_a_table_is_emptied_leaves_nothing_of_it() {
    let other = TableShape { model: 6, ..SHAPE };
    let words = TableShape::bytes(8) / size_of::<u64>() + HEADER_WORDS;
    for death in (0..words as u64).step_by(3) {
        let file = file();
        open(&file, SHAPE).seal(PageId(1), &entry());
        injected::die_after(Some(death));
        let died = catch_unwind(AssertUnwindSafe(|| open(&file, other)));
        injected::die_after(None);
        assert!(died.is_err());
        assert!(!open(&file, other).is_sealed(PageId(1)), "store {death}");
    }
}

/// Another engine of the same version must read what this one writes.
#[test]
fn the_layout_is_what_it_always_was() {
    let entry = entry();
    let words: Vec<u64> = entry.words().collect();
    assert_eq!(words.len(), USED_WORDS - 1);
    assert_eq!(entry.seal(PageId(1)), 4_791_671_449_699_024_427);
}
