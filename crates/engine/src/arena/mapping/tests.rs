use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

fn memory_file(bytes: usize) -> File {
    let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes as u64).unwrap();
    file
}

/// Kilobytes of the mapping at `start` that the system says are mapped as huge pages.
fn huge_kilobytes(mapping: &Mapping) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", mapping.start.addr());
    let own = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let kilobytes = own
        .filter_map(|line| line.strip_prefix("ShmemPmdMapped:"))
        .next()
        .unwrap();
    kilobytes.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_mapping_lies_as_its_place_in_the_file_does() {
    let file = memory_file(5 * HUGE_BYTES);
    for (offset, len) in [
        (0, 0),
        (0, 1),
        (4096, 3 * HUGE_BYTES),
        (HUGE_BYTES + 8192, 4096),
    ] {
        let mapping = Mapping::shared(&file, offset, len, true).unwrap();
        assert_eq!(mapping.bytes().len(), len);
        assert_eq!(mapping.start.addr().get() % HUGE_BYTES, offset % HUGE_BYTES);
    }
}

#[test]
fn bytes_stay_when_their_pages_become_huge() {
    let len = 3 * HUGE_BYTES + 5000;
    let file = memory_file(4096 + len);
    let mut mapping = Mapping::shared(&file, 4096, len, true).unwrap();
    let pattern = |index: usize| u8::try_from(index % 251).unwrap();
    for (index, byte) in mapping.bytes_mut().iter_mut().enumerate().skip(HUGE_BYTES) {
        *byte = pattern(index);
    }
    mapping.make_huge(HUGE_BYTES + 1..len);
    mapping.make_huge(0..usize::MAX);
    mapping.make_huge(len..len);
    let again = Mapping::shared(&file, 4096, len, false).unwrap();
    for mapping in [&mapping, &again] {
        let (zeros, filled) = mapping.bytes().split_at(HUGE_BYTES);
        assert!(zeros.iter().all(|byte| *byte == 0));
        let mut pairs = filled.iter().enumerate();
        assert!(pairs.all(|(index, byte)| *byte == pattern(HUGE_BYTES + index)));
    }
}

/// Linux 6.1 knows how; an older one must leave everything as it is.
#[test]
fn whole_ranges_become_huge_where_the_system_can() {
    let file = memory_file(4 * HUGE_BYTES);
    let mut mapping = Mapping::shared(&file, 0, 4 * HUGE_BYTES, true).unwrap();
    assert_eq!(huge_kilobytes(&mapping), 0);
    let mut probe = Mapping::shared(&file, 0, HUGE_BYTES, true).unwrap();
    probe.make_huge(0..1);
    let can = huge_kilobytes(&probe) > 0;
    mapping.make_huge(HUGE_BYTES..3 * HUGE_BYTES);
    assert_eq!(huge_kilobytes(&mapping), if can { 4096 } else { 0 });
}

#[test]
fn a_read_only_mapping_refuses_to_be_written() {
    let mut mapping = Mapping::private(100).unwrap();
    mapping.bytes_mut().fill(3);
    let mut mapping = mapping.make_read_only().unwrap();
    assert_eq!(mapping.bytes(), [3; 100]);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        mapping.bytes_mut().fill(4);
    }));
    assert!(refused.is_err());
}
