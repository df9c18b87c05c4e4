//! Whether a page's bytes are still those that its step wrote.
//!
//! Eight lanes take every eighth word each: `lane = rotate((lane ^ word) * odd, 29)`. A step
//! is a bijection of the lane and of the word, and so is every step of the final fold:
//! damage within one word always shows, other damage but for one chance in 2^64. Eight
//! multiplications are in flight at once, which is as fast as memory.
//!
//! A page is cut into parts that are summed apart, so that several threads can share it.

/// Bytes of all parts of a page but the last.
pub const PART_BYTES: usize = 64 << 10;

const LANES: usize = 8;
const WORD_BYTES: usize = size_of::<u64>();
/// 2^64 divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Checksum of one part. What is left over behind its whole words does not count.
#[must_use]
pub fn part_checksum(bytes: &[u8]) -> u64 {
    let (words, _rest) = bytes.as_chunks::<WORD_BYTES>();
    let (rounds, rest) = words.as_chunks::<LANES>();
    let mut lanes = [ODD; LANES];
    for round in rounds {
        for (lane, word) in lanes.iter_mut().zip(round) {
            *lane = turn(*lane, u64::from_le_bytes(*word));
        }
    }
    for (lane, word) in lanes.iter_mut().zip(rest) {
        *lane = turn(*lane, u64::from_le_bytes(*word));
    }
    fold(words.len() as u64, lanes)
}

/// Checksum of a page, from those of its parts in their order.
#[must_use]
pub fn page_checksum(parts: &[u64]) -> u64 {
    fold(parts.len() as u64, parts.iter().copied())
}

#[inline]
fn turn(lane: u64, word: u64) -> u64 {
    (lane ^ word).wrapping_mul(ODD).rotate_left(29)
}

/// One word of all `values` in their order.
pub(super) fn fold(seed: u64, values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(seed, |sum, value| mix(sum ^ value))
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014) behind a step of its sequence,
/// so that 0 does not stay 0.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(ODD);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
