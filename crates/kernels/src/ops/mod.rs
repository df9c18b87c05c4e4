//! Everything of a forward pass that is not a matrix product.

mod activation;
mod attention;
mod kv;
mod math;
mod norm;
mod rope;

pub use attention::{AttentionRow, AttentionShape};
pub use kv::{KvLayout, KvRow, KvType, PAGE_TOKENS};
pub use rope::{RopeKind, RopeTable};

use crate::simd::{LANES, Simd};

/// Below this many elements a second thread costs more than it saves.
const PARALLEL_ELEMENTS_MIN: usize = 16 << 10;

/// Rows of `cols` elements per chunk, so that a chunk is worth handing to a thread.
fn rows_per_chunk(cols: usize) -> usize {
    (PARALLEL_ELEMENTS_MIN / 4).div_ceil(cols.max(1))
}

/// The first up to 16 elements of `source`, padded with zeros.
#[inline(always)]
pub(crate) fn load_padded<S: Simd>(simd: S, source: &[f32]) -> S::F {
    if let Some(full) = source.first_chunk::<LANES>() {
        return simd.load(full);
    }
    let mut padded = [0.0; LANES];
    padded[..source.len()].copy_from_slice(source);
    simd.load(&padded)
}

/// Stores as many lanes as `target` has room for, at most 16.
#[inline(always)]
pub(crate) fn store_partial<S: Simd>(simd: S, value: S::F, target: &mut [f32]) {
    if let Some(full) = target.first_chunk_mut::<LANES>() {
        return simd.store(value, full);
    }
    let mut lanes = [0.0; LANES];
    simd.store(value, &mut lanes);
    let len = target.len();
    target.copy_from_slice(&lanes[..len]);
}

#[cfg(test)]
mod tests;
