//! Quantized tile formats and the arithmetic on them: the scalar reference, the vector
//! tiers, and the worker pool. Knows nothing of models, files or requests.
//!
//! Every public operation gives the same bits on every instruction set and with any number
//! of threads; `docs/arithmetic.md` is its specification in formulas.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numeric code over buffers whose lengths are checked at the public boundary; a wrong bound panics and is contained"
)]

mod activations;
mod format;
mod isa;
mod matmul;
mod ops;
mod pool;
pub mod reference;
#[cfg(test)]
mod sample;
mod simd;
mod tiles;

pub use activations::Activations;
pub use format::Format;
pub use isa::{Isa, Kernels, UnsupportedIsa};
pub use matmul::Product;
pub use ops::{
    AttentionRow, AttentionShape, KvLayout, KvRow, KvType, PAGE_TOKENS, RopeKind, RopeTable,
};
pub use pool::{Pool, THREADS_MAX};
pub use reference::dequantize_row;
pub use simd::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use tiles::{STRIP_ROWS, TileError, Tiles, repack, repack_strip, strip_bytes, tile_bytes};
