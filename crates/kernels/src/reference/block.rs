//! How ggml lays out the blocks of its quantized formats.
//!
//! ```text
//! Q8_0  d:f16 q:i8[32]
//! Q4_0  d:f16 qs:[16]              qs[i] = code i | code i+16 << 4
//! Q4_1  d:f16 m:f16 qs:[16]
//! Q5_0  d:f16 qh:u32 qs:[16]       bit i of qh = fifth bit of code i
//! Q5_1  d:f16 m:f16 qh:u32 qs:[16]
//! Q4_K  d:f16 dmin:f16 s:[12] qs:[128]
//! Q5_K  d:f16 dmin:f16 s:[12] qh:[32] qs:[128]
//!       64 codes share 32 bytes of qs, the first 32 of them in the lower nibbles;
//!       bit j of qh[i] = fifth bit of code 32*j + i;
//!       s = 8 scales and 8 minima of 6 bits
//! Q6_K  ql:[128] qh:[64] s:i8[16] d:f16
//!       128 codes share 64 bytes of ql and 32 of qh; codes 0..64 are in the lower nibbles;
//!       bits 2j and 2j+1 of qh[i] = upper bits of code 32*j + i
//! ```

use crate::{Format, f16_to_f32};

/// Consecutive weights of a block under one scale: weight = (code - offset) * d (+ m).
#[derive(Debug)]
pub(super) struct Group {
    /// Place of the first weight in the block.
    pub(super) start: usize,
    pub(super) codes: Vec<u8>,
    pub(super) offset: i16,
    pub(super) d: f32,
    pub(super) m: Option<f32>,
}

/// The groups of one block, in the order of their weights.
///
/// # Panics
/// If `block` is not one block of a quantized format.
pub(super) fn groups(format: Format, block: &[u8]) -> Vec<Group> {
    assert_eq!(block.len(), format.block_bytes(), "one block");
    let group = |offset, codes, m| {
        vec![Group {
            start: 0,
            codes,
            offset,
            d: half(block, 0),
            m,
        }]
    };
    match format {
        Format::F32 | Format::F16 | Format::Bf16 => Vec::new(),
        Format::Q8_0 => group(
            128,
            block[2..].iter().map(|code| code ^ 0x80).collect(),
            None,
        ),
        Format::Q4_0 => group(8, nibbles(&block[2..]), None),
        Format::Q4_1 => group(0, nibbles(&block[4..]), Some(half(block, 2))),
        Format::Q5_0 => group(16, five_bits(&block[2..]), None),
        Format::Q5_1 => group(0, five_bits(&block[4..]), Some(half(block, 2))),
        Format::Q4K | Format::Q5K => (0..8)
            .map(|index| group_with_min(format, block, index))
            .collect(),
        Format::Q6K => (0..16).map(|index| group_of_16(block, index)).collect(),
    }
}

/// The f16 at `block[at..]`.
fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// All lower nibbles, then all upper nibbles.
fn nibbles(bytes: &[u8]) -> Vec<u8> {
    let lower = bytes.iter().map(|byte| byte & 15);
    lower.chain(bytes.iter().map(|byte| byte >> 4)).collect()
}

/// Codes whose fifth bits are in the first four bytes, and their nibbles after these.
fn five_bits(bytes: &[u8]) -> Vec<u8> {
    let mut codes = nibbles(&bytes[4..]);
    for (index, code) in codes.iter_mut().enumerate() {
        *code |= (bytes[index / 8] >> (index % 8) & 1) << 4;
    }
    codes
}

/// Group `index` of Q4_K or Q5_K.
fn group_with_min(format: Format, block: &[u8], index: usize) -> Group {
    let (scale, min) = six_bit_scales(&block[4..16], index);
    let nibbles_at = if format == Format::Q5K { 48 } else { 16 };
    let codes = (0..32).map(|element| {
        let byte = block[nibbles_at + index / 2 * 32 + element];
        let nibble = byte >> (4 * (index % 2)) & 15;
        match format {
            Format::Q5K => nibble | (block[16 + element] >> index & 1) << 4,
            _ => nibble,
        }
    });
    Group {
        start: 32 * index,
        codes: codes.collect(),
        offset: 0,
        d: half(block, 0) * f32::from(scale),
        m: Some(-(half(block, 2) * f32::from(min))),
    }
}

/// Scale and minimum of group `index`. The first four of each are in the lower six bits of
/// bytes 0..4 and 4..8; of the last four the lower nibbles share bytes 8..12, and the upper
/// two bits fill up bytes 0..8.
pub(crate) fn six_bit_scales(packed: &[u8], index: usize) -> (u8, u8) {
    if index < 4 {
        return (packed[index] & 63, packed[index + 4] & 63);
    }
    let lower = packed[index + 4];
    (
        lower & 15 | packed[index - 4] >> 6 << 4,
        lower >> 4 | packed[index] >> 6 << 4,
    )
}

/// Group `index` of Q6_K.
fn group_of_16(block: &[u8], index: usize) -> Group {
    let codes = (0..16).map(|element| {
        let within = index % 8 * 16 + element;
        let (part, lane) = (within / 32, within % 32);
        let lower = block[index / 8 * 64 + within % 64] >> (4 * (part / 2)) & 15;
        let upper = block[128 + index / 8 * 32 + lane] >> (2 * part) & 3;
        lower | upper << 4
    });
    Group {
        start: 16 * index,
        codes: codes.collect(),
        offset: 32,
        d: half(block, 208) * f32::from(block[192 + index].cast_signed()),
        m: None,
    }
}
