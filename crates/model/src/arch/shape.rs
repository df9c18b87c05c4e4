//! The sizes that every decoder's file states.

use relight_kernels::KvLayout;

use crate::spec::{ArchError, Claims};

/// Sizes of a decoder whose layers are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) layer_count: usize,
    pub(super) context_length: usize,
    /// Length of the residual stream.
    pub(super) width: usize,
    pub(super) feed_forward_width: usize,
    pub(super) head_count: usize,
    pub(super) kv_head_count: usize,
    pub(super) head_dim: usize,
}

impl Shape {
    pub(super) fn read(claims: &mut Claims<'_>) -> Result<Self, ArchError> {
        let layer_count = positive(claims, "block_count")?;
        let context_length = positive(claims, "context_length")?;
        let width = positive(claims, "embedding_length")?;
        let feed_forward_width = positive(claims, "feed_forward_length")?;
        let head_count = positive(claims, "attention.head_count")?;
        let kv_head_count = claims.optional_count("attention.head_count_kv")?;
        let kv_head_count = kv_head_count.unwrap_or(head_count);
        if kv_head_count == 0 || !head_count.is_multiple_of(kv_head_count) {
            let expected = "a divisor of attention.head_count";
            return Err(claims.unsupported("attention.head_count_kv", kv_head_count, expected));
        }
        Ok(Self {
            layer_count,
            context_length,
            width,
            feed_forward_width,
            head_count,
            kv_head_count,
            head_dim: head_dim(claims, width, head_count)?,
        })
    }

    /// Length of all query heads of a token together.
    pub(super) fn query_width(&self) -> usize {
        self.head_count * self.head_dim
    }

    /// Length of all key or value heads of a token together.
    pub(super) fn kv_width(&self) -> usize {
        self.kv_head_count * self.head_dim
    }

    /// The usual factor of scores, `1 / sqrt(head_dim)`.
    pub(super) fn score_scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
}

fn positive(claims: &mut Claims<'_>, key: &str) -> Result<usize, ArchError> {
    let count = claims.count(key)?;
    if count == 0 {
        return Err(claims.unsupported(key, count, "a positive number"));
    }
    Ok(count)
}

fn head_dim(claims: &mut Claims<'_>, width: usize, head_count: usize) -> Result<usize, ArchError> {
    let key_length = claims.optional_count("attention.key_length")?;
    let value_length = claims.optional_count("attention.value_length")?;
    if key_length.is_none() && !width.is_multiple_of(head_count) {
        let expected = "a divisor of embedding_length, where attention.key_length is missing";
        return Err(claims.unsupported("attention.head_count", head_count, expected));
    }
    let head_dim = key_length.unwrap_or(width / head_count);
    if !KvLayout::head_size_supported(head_dim) {
        let expected = "a multiple of 16 up to 1024";
        return Err(claims.unsupported("attention.key_length", head_dim, expected));
    }
    if let Some(value_length) = value_length
        && value_length != head_dim
    {
        let expected = "the length of a key";
        return Err(claims.unsupported("attention.value_length", value_length, expected));
    }
    Ok(head_dim)
}
