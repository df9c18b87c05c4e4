use super::*;
use crate::seeded::Seeded;

fn random_bytes(random: &mut Seeded, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_index| random.next().to_le_bytes()[0])
        .collect()
}

#[test]
fn every_flipped_bit_shows() {
    let mut random = Seeded::new(1);
    for count in [8, 64, 72, 1000] {
        let mut bytes = random_bytes(&mut random, count);
        let whole = part_checksum(&bytes);
        for bit in 0..8 * count {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(part_checksum(&bytes), whole, "bit {bit} of {count} bytes");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(part_checksum(&bytes), whole);
    }
}

#[test]
fn swapped_words_and_other_lengths_show() {
    let mut random = Seeded::new(2);
    let bytes = random_bytes(&mut random, 512);
    let whole = part_checksum(&bytes);
    for (left, right) in [(0, 1), (0, 8), (3, 60), (8, 16)] {
        let mut swapped = bytes.clone();
        for index in 0..8 {
            swapped.swap(8 * left + index, 8 * right + index);
        }
        assert_ne!(part_checksum(&swapped), whole, "words {left} and {right}");
    }
    let zeros = [0; 1024];
    let sums: std::collections::BTreeSet<u64> = (0..=128)
        .map(|words| part_checksum(&zeros[..8 * words]))
        .collect();
    assert_eq!(sums.len(), 129);
}

#[test]
fn the_order_and_number_of_parts_show() {
    let sums: std::collections::BTreeSet<u64> = [
        page_checksum(&[]),
        page_checksum(&[0]),
        page_checksum(&[0, 0]),
        page_checksum(&[1, 2]),
        page_checksum(&[2, 1]),
    ]
    .into();
    assert_eq!(sums.len(), 5);
}

/// An engine compares with what another engine has written: the sum must not change without
/// a new version of the table.
#[test]
fn the_sum_is_what_it_always_was() {
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(part_checksum(&bytes), 4_175_290_973_676_590_750);
    assert_eq!(page_checksum(&[1, 2, 3]), 74_078_413_316_773_926);
}
