//! From the rows of a GGUF file to strips.
//!
//! Codes travel as words: four codes of consecutive columns, one per byte, little-endian.
//! Every format yields its 32 codes as eight words, and every code width has one way to
//! spread eight words over its planes.

use super::{STRIP_ROWS, strip_bytes, tile_bytes};
use crate::Format;
use crate::reference::block::six_bit_scales;

const NIBBLES: u32 = 0x0f0f_0f0f;

/// Writes the tiles of a matrix of `rows` x `cols` weights; `source` holds its rows as in the
/// file.
///
/// # Panics
/// If `source` or `out` ([`tile_bytes`]) does not have the size of the matrix.
pub fn repack(format: Format, rows: usize, cols: usize, source: &[u8], out: &mut [u8]) {
    let row_bytes = format.row_bytes(cols);
    assert_eq!(
        Some(source.len()),
        row_bytes.checked_mul(rows),
        "the whole matrix"
    );
    assert_eq!(
        out.len(),
        tile_bytes(format, rows, cols),
        "the whole matrix"
    );
    if source.is_empty() {
        return;
    }
    let strips = out.chunks_exact_mut(strip_bytes(format, cols));
    for (rows, strip) in source.chunks(row_bytes * STRIP_ROWS).zip(strips) {
        repack_strip(format, cols, rows, strip);
    }
}

/// Writes one strip; `source` holds its up to 16 rows as in the file. Missing rows become
/// zero. Strips are independent of each other.
///
/// # Panics
/// If `source` is not up to 16 whole rows, or `out` not one strip.
pub fn repack_strip(format: Format, cols: usize, source: &[u8], out: &mut [u8]) {
    let row_bytes = format.row_bytes(cols);
    assert_eq!(out.len(), strip_bytes(format, cols), "a whole strip");
    assert!(
        source.len() <= out.len() && source.len().is_multiple_of(row_bytes.max(1)),
        "up to 16 whole rows"
    );
    let block_bytes = format.block_bytes();
    let zero = [0; 256];
    let zero = &zero[..block_bytes];
    let blocks = out.chunks_exact_mut(block_bytes * STRIP_ROWS);
    for (index, block) in blocks.enumerate() {
        for row in 0..STRIP_ROWS {
            let start = row * row_bytes + index * block_bytes;
            let source = source.get(start..start + block_bytes).unwrap_or(zero);
            repack_block(format, source, row, block);
        }
    }
}

/// Puts one block of one row into its place among the blocks of 16 rows.
fn repack_block(format: Format, source: &[u8], row: usize, out: &mut [u8]) {
    match format {
        Format::F32 | Format::F16 | Format::Bf16 => {
            out[row * source.len()..][..source.len()].copy_from_slice(source);
        }
        Format::Q8_0 => {
            let codes = words::<8>(&source[2..]).map(|word| word ^ 0x8080_8080);
            pack_8(&codes, row, place_halves(&source[..2], row, out));
        }
        Format::Q4_0 => {
            let codes = halves_of_nibbles(&source[2..]);
            pack_4(&codes, row, place_halves(&source[..2], row, out));
        }
        Format::Q4_1 => {
            let codes = halves_of_nibbles(&source[4..]);
            pack_4(&codes, row, place_halves(&source[..4], row, out));
        }
        Format::Q5_0 => {
            let codes = with_fifth_bits(&source[2..]);
            pack_5(&codes, row, place_halves(&source[..2], row, out));
        }
        Format::Q5_1 => {
            let codes = with_fifth_bits(&source[4..]);
            pack_5(&codes, row, place_halves(&source[..4], row, out));
        }
        Format::Q4K => {
            let groups = place_k_scales(source, row, out);
            for (index, group) in groups.chunks_exact_mut(256).enumerate() {
                pack_4(&k_nibbles(&source[16..], index), row, group);
            }
        }
        Format::Q5K => {
            let groups = place_k_scales(source, row, out);
            for (index, group) in groups.chunks_exact_mut(64 + 256).enumerate() {
                let high = words::<8>(&source[16..]);
                let mut codes = k_nibbles(&source[48..], index);
                for (code, high) in codes.iter_mut().zip(high) {
                    *code |= (high >> index & 0x0101_0101) << 4;
                }
                pack_5(&codes, row, group);
            }
        }
        Format::Q6K => {
            let out = place_halves(&source[208..], row, out);
            let (scales, groups) = out.split_at_mut(16 * STRIP_ROWS);
            for (scales, scale) in scales.chunks_exact_mut(STRIP_ROWS).zip(&source[192..]) {
                scales[row] = *scale;
            }
            for (index, group) in groups.chunks_exact_mut(128 + 256).enumerate() {
                pack_6(&six_bits(source, index), row, group);
            }
        }
    }
}

/// Puts the f16 values of a block into the vectors of their kind; the rest of `out` remains.
fn place_halves<'a>(source: &[u8], row: usize, out: &'a mut [u8]) -> &'a mut [u8] {
    let mut rest = out;
    for half in source.chunks_exact(2) {
        let (vector, after) = rest.split_at_mut(2 * STRIP_ROWS);
        vector[2 * row..][..2].copy_from_slice(half);
        rest = after;
    }
    rest
}

/// d, dmin and the packed scales of Q4_K and Q5_K.
fn place_k_scales<'a>(source: &[u8], row: usize, out: &'a mut [u8]) -> &'a mut [u8] {
    let out = place_halves(&source[..4], row, out);
    let (low, rest) = out.split_at_mut(8 * STRIP_ROWS);
    let (high, rest) = rest.split_at_mut(4 * STRIP_ROWS);
    for (pair, high) in high.chunks_exact_mut(STRIP_ROWS).enumerate() {
        let [first, second] =
            [2 * pair, 2 * pair + 1].map(|index| six_bit_scales(&source[4..16], index));
        low[2 * pair * STRIP_ROWS + row] = first.0 & 15 | first.1 << 4;
        low[(2 * pair + 1) * STRIP_ROWS + row] = second.0 & 15 | second.1 << 4;
        let upper = |(scale, min): (u8, u8)| scale >> 4 | min >> 4 << 2;
        high[row] = upper(first) | upper(second) << 4;
    }
    rest
}

/// The first `N` words of `bytes`.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let words = bytes.as_chunks().0;
    std::array::from_fn(|index| u32::from_le_bytes(words[index]))
}

/// 32 codes in 16 bytes: lower nibbles, then upper nibbles.
fn halves_of_nibbles(bytes: &[u8]) -> [u32; 8] {
    let [a, b, c, d] = words(bytes);
    [a, b, c, d, a >> 4, b >> 4, c >> 4, d >> 4].map(|word| word & NIBBLES)
}

/// A word of fifth bits and 16 bytes of nibbles.
fn with_fifth_bits(bytes: &[u8]) -> [u32; 8] {
    let [high] = words(bytes);
    let mut codes = halves_of_nibbles(&bytes[4..]);
    for (index, code) in codes.iter_mut().enumerate() {
        // Four bits to the lowest bits of four bytes: no two partial products overlap.
        let spread = (high >> (4 * index) & 15).wrapping_mul(0x0020_4081) & 0x0101_0101;
        *code |= spread << 4;
    }
    codes
}

/// Group `index` of a K-quant's nibbles: 64 codes share 32 bytes.
fn k_nibbles(bytes: &[u8], index: usize) -> [u32; 8] {
    let shift = 4 * (index % 2);
    words::<8>(&bytes[index / 2 * 32..]).map(|word| word >> shift & NIBBLES)
}

/// Codes 32 * `index`.. of a Q6_K block.
fn six_bits(source: &[u8], index: usize) -> [u32; 8] {
    let (half, part) = (index / 4, index % 4);
    let low = words::<8>(&source[half * 64 + part % 2 * 32..]);
    let high = words::<8>(&source[128 + half * 32..]);
    std::array::from_fn(|word| {
        let upper = high[word] >> (2 * part) & 0x0303_0303;
        low[word] >> (4 * (part / 2)) & NIBBLES | upper << 4
    })
}

/// Writes `word` as the codes of `row` in the vector at the front of `vector`.
fn place(word: u32, row: usize, vector: &mut [u8]) {
    vector[4 * row..][..4].copy_from_slice(&word.to_le_bytes());
}

fn pack_8(codes: &[u32; 8], row: usize, out: &mut [u8]) {
    for (code, vector) in codes.iter().zip(out.chunks_exact_mut(64)) {
        place(*code, row, vector);
    }
}

fn pack_4(codes: &[u32; 8], row: usize, out: &mut [u8]) {
    let pairs = codes.as_chunks::<2>().0;
    for ([lower, upper], vector) in pairs.iter().zip(out.chunks_exact_mut(64)) {
        place(lower & NIBBLES | (upper & NIBBLES) << 4, row, vector);
    }
}

fn pack_5(codes: &[u32; 8], row: usize, out: &mut [u8]) {
    let (plane, nibbles) = out.split_at_mut(64);
    let bits = codes.iter().enumerate();
    let bits = bits.fold(0, |bits, (index, code)| {
        bits | (code >> 4 & 0x0101_0101) << index
    });
    place(bits, row, plane);
    pack_4(codes, row, nibbles);
}

fn pack_6(codes: &[u32; 8], row: usize, out: &mut [u8]) {
    let (planes, nibbles) = out.split_at_mut(128);
    for (codes, plane) in codes
        .as_chunks::<4>()
        .0
        .iter()
        .zip(planes.chunks_exact_mut(64))
    {
        let bits = codes.iter().enumerate();
        let bits = bits.fold(0, |bits, (index, code)| {
            bits | (code >> 4 & 0x0303_0303) << (2 * index)
        });
        place(bits, row, plane);
    }
    pack_4(codes, row, nibbles);
}
