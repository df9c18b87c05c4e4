//! The arithmetic in plain Rust, straight from the bytes of a GGUF file: the executable
//! specification that every kernel is tested against, bit for bit.
//!
//! ```text
//! weight     = (code - offset) * d [+ m]                 dequantize_row
//! activation = code * scale                              quantize_activation
//!
//! quantized formats, groups ascending:                   dot
//!   I   = sum((code - offset) * activation code)         exact, i32
//!   acc = fma(f32(I), d * scale, acc)
//!   acc = fma(m, scale * f32(sum(activation code)), acc) formats with minima
//! float formats, elements ascending:
//!   acc = fma(weight, activation, acc)
//!
//! keys and values as bytes = code * scale                quantize_kv
//! ```
//!
//! No part of it knows tiles, vectors or threads.

mod activation;
pub(crate) mod block;
mod kv;

pub(crate) use activation::LARGEST_MIN;
pub use activation::{ActivationBlock, quantize_activation};
pub use kv::{KvCodes, quantize_kv};

use crate::{Format, bf16_to_f32, f16_to_f32};

/// Writes the weights of one row, `out.len()` of them, with exactly ggml's values.
///
/// # Panics
/// If `source` is not a row of `out.len()` weights.
pub fn dequantize_row(format: Format, source: &[u8], out: &mut [f32]) {
    assert_eq!(source.len(), format.row_bytes(out.len()), "a whole row");
    let blocks = source.chunks_exact(format.block_bytes());
    for (block, out) in blocks.zip(out.chunks_exact_mut(format.block_elements())) {
        match format {
            Format::F32 | Format::F16 | Format::Bf16 => out[0] = float(format, block),
            _ => dequantize_block(format, block, out),
        }
    }
}

fn dequantize_block(format: Format, block: &[u8], out: &mut [f32]) {
    for group in block::groups(format, block) {
        let out = &mut out[group.start..][..group.codes.len()];
        for (out, code) in out.iter_mut().zip(&group.codes) {
            let scaled = f32::from(i16::from(*code) - group.offset) * group.d;
            *out = group.m.map_or(scaled, |m| scaled + m);
        }
    }
}

/// The weight in the bytes of one element.
fn float(format: Format, element: &[u8]) -> f32 {
    match (format, element) {
        (Format::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (Format::F16, &[a, b]) => f16_to_f32(u16::from_le_bytes([a, b])),
        (_, &[a, b]) => bf16_to_f32(u16::from_le_bytes([a, b])),
        _ => f32::NAN,
    }
}

/// The product of one row of weights and one row of activations: the canonical chain.
///
/// # Panics
/// If `weights` is not a row of `activations.len()` weights.
#[must_use]
pub fn dot(format: Format, weights: &[u8], activations: &[f32]) -> f32 {
    assert_eq!(
        weights.len(),
        format.row_bytes(activations.len()),
        "a whole row"
    );
    let blocks = weights.chunks_exact(format.block_bytes());
    let mut acc = 0.0f32;
    if !format.is_quantized() {
        for (element, activation) in blocks.zip(activations) {
            acc = float(format, element).mul_add(*activation, acc);
        }
        return acc;
    }
    let quantized = quantize_activation(activations);
    let per_block = format.block_elements() / ActivationBlock::ELEMENTS;
    for (block, activations) in blocks.zip(quantized.chunks_exact(per_block)) {
        for group in block::groups(format, block) {
            acc = add_group(acc, &group, activations);
        }
    }
    acc
}

fn add_group(acc: f32, group: &block::Group, activations: &[ActivationBlock]) -> f32 {
    let block = &activations[group.start / ActivationBlock::ELEMENTS];
    let codes = &block.codes[group.start % ActivationBlock::ELEMENTS..][..group.codes.len()];
    let product: i32 = group
        .codes
        .iter()
        .zip(codes)
        .map(|(weight, activation)| {
            (i32::from(*weight) - i32::from(group.offset)) * i32::from(*activation)
        })
        .sum();
    let acc = (product as f32).mul_add(group.d * block.scale, acc);
    let Some(m) = group.m else { return acc };
    let sum: i32 = codes.iter().map(|code| i32::from(*code)).sum();
    m.mul_add(block.scale * sum as f32, acc)
}

#[cfg(test)]
mod tests;
