//! The state of a row, rounded and put into its place.

#![expect(unsafe_code, reason = "heads write disjoint parts of the pages")]

use super::{HEAD_SIZE_MAX, KvLayer, KvRow, KvType, PAGE_TOKENS};
use crate::pool::Disjoint;
use crate::reference::LARGEST_MIN;
use crate::simd::{Kernel, LANES, Simd, half};

/// Writes one head of all rows.
pub(super) struct Writer<'a> {
    pub(super) pages: &'a Disjoint<'a, u8>,
    pub(super) page_bytes: usize,
    pub(super) layer: KvLayer,
    pub(super) head: usize,
    pub(super) rows: &'a [KvRow],
    /// Of all rows and heads.
    pub(super) keys: &'a [f32],
    pub(super) values: &'a [f32],
}

impl Kernel for Writer<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let layer = self.layer;
        let (size, cols) = (layer.head_size, layer.kv_heads * layer.head_size);
        for (row, place) in self.rows.iter().enumerate() {
            let slot = place.slot as usize;
            assert!(slot < PAGE_TOKENS, "slot {slot} of a page");
            let page = place.page as usize * self.page_bytes;
            let source = row * cols + self.head * size;
            let start = page + layer.keys(self.head);
            // SAFETY: a head's part of a page is touched by this call alone.
            let keys = unsafe { self.pages.slice(start..start + layer.head_bytes()) };
            let start = page + layer.values(self.head);
            // SAFETY: as above, and the values of a head do not overlap its keys.
            let values = unsafe { self.pages.slice(start..start + layer.head_bytes()) };
            let source = source..source + size;
            let source = (&self.keys[source.clone()], &self.values[source]);
            match layer.kv_type {
                KvType::F16 => write_floats(half::f32_to_f16, 0x7c00, slot, source, (keys, values)),
                KvType::Bf16 => {
                    write_floats(half::f32_to_bf16, 0x7f80, slot, source, (keys, values));
                }
                KvType::Q8_0 => write_codes(simd, slot, source, (keys, values)),
            }
        }
    }
}

/// Writes floats of 16 bits; `exponent` has the bits of theirs.
#[inline(always)]
fn write_floats(
    round: impl Fn(f32) -> u16,
    exponent: u16,
    slot: usize,
    (keys, values): (&[f32], &[f32]),
    (stored_keys, stored_values): (&mut [u8], &mut [u8]),
) {
    let mut is_finite = true;
    let columns = stored_keys.as_chunks_mut().0;
    for (key, column) in keys.iter().zip(columns.chunks_exact_mut(PAGE_TOKENS)) {
        let rounded = round(*key);
        is_finite &= rounded & exponent != exponent;
        column[slot] = rounded.to_le_bytes();
    }
    let targets = &mut stored_values.as_chunks_mut().0[slot * values.len()..];
    for (value, target) in values.iter().zip(targets) {
        *target = round(*value).to_le_bytes();
    }
    if !is_finite {
        let targets = &mut stored_values.as_chunks_mut().0[slot * values.len()..];
        targets[..values.len()].fill(round(f32::NAN).to_le_bytes());
    }
}

/// Writes codes and their scales, see [`crate::reference::quantize_kv`].
#[inline(always)]
fn write_codes<S: Simd>(
    simd: S,
    slot: usize,
    (keys, values): (&[f32], &[f32]),
    (stored_keys, stored_values): (&mut [u8], &mut [u8]),
) {
    let (stored_keys, key_scales) = stored_keys.split_at_mut(keys.len() * PAGE_TOKENS);
    let (stored_values, value_scales) = stored_values.split_at_mut(values.len() * PAGE_TOKENS);
    let mut codes = [0; HEAD_SIZE_MAX];
    let codes = &mut codes[..keys.len()];
    let key_scale = quantize(simd, keys, codes);
    for (code, column) in codes.iter().zip(stored_keys.chunks_exact_mut(PAGE_TOKENS)) {
        column[slot] = *code;
    }
    let targets = &mut stored_values[slot * values.len()..][..values.len()];
    let mut value_scale = quantize(simd, values, targets);
    if key_scale.is_nan() {
        targets.fill(0);
        value_scale = f32::NAN;
    }
    key_scales.as_chunks_mut().0[slot] = key_scale.to_le_bytes();
    value_scales.as_chunks_mut().0[slot] = value_scale.to_le_bytes();
}

/// Writes the codes, as bytes, of elements whose number is a multiple of 16; returns their scale.
#[inline(always)]
fn quantize<S: Simd>(simd: S, elements: &[f32], codes: &mut [u8]) -> f32 {
    let magnitudes = elements.iter().map(|element| element.abs().to_bits());
    let largest = f32::from_bits(magnitudes.fold(0, u32::max));
    if largest < LARGEST_MIN || !largest.is_finite() {
        codes.fill(0);
        return if largest.is_finite() { 0.0 } else { f32::NAN };
    }
    let factor = simd.splat(127.0 / largest);
    let elements = elements.as_chunks::<LANES>().0;
    for (elements, codes) in elements.iter().zip(codes.as_chunks_mut::<LANES>().0) {
        // A magnitude times the factor is at most 127 after rounding: the product is within
        // one part in 2^22 of it.
        let rounded = simd.round_to_int(simd.mul(simd.load(elements), factor));
        let mut lanes = [0; LANES];
        simd.store_int(rounded, &mut lanes);
        *codes = lanes.map(|lane| lane as u8);
    }
    largest / 127.0
}
