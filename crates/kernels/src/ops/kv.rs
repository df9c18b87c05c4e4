//! Pages of key and value state.
//!
//! A page holds 64 tokens of all layers, as bytes. Within a page, layer after layer:
//!
//! ```text
//!   K  (kv_head) of (head_size, 64) elements, 64 scales     lane = token: a score is a chain over head_size
//!   V  (kv_head) of (64, head_size) elements, 64 scales     lane = element: an output is a chain over tokens
//! ```
//!
//! Scales are there only if the type has them: f32, one for each token.

mod row;
#[cfg(test)]
mod tests;

use crate::pool::Disjoint;
use crate::{Kernels, Pool};

/// Tokens of one page.
pub const PAGE_TOKENS: usize = 64;

/// Largest size of a head that can be paged.
const HEAD_SIZE_MAX: usize = 1024;

/// What keys and values are kept as: each an arithmetic of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// IEEE half floats.
    #[default]
    F16,
    /// bfloat16: the range of f32, 8 bits of precision.
    Bf16,
    /// Signed bytes with one f32 scale for each token and head, of keys and of values. A scale
    /// of 16 bits would save 3 % at heads of 64, and would lose the range of f32 and the
    /// exactness of `largest / 127`.
    Q8_0,
}

impl KvType {
    pub const ALL: [Self; 3] = [Self::F16, Self::Bf16, Self::Q8_0];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kv_type| kv_type.name() == name)
    }

    /// Bytes of one element.
    pub(super) fn element_bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 1,
        }
    }

    /// Bytes of the scale of a head's elements of one token.
    fn scale_bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 0,
            Self::Q8_0 => size_of::<f32>(),
        }
    }
}

/// Where a layer's part begins within a page, in bytes, and its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KvLayer {
    pub(super) kv_type: KvType,
    offset: usize,
    pub(super) kv_heads: usize,
    pub(super) head_size: usize,
}

impl KvLayer {
    /// Elements of one head's keys, or values, in a page.
    pub(super) fn head_elements(&self) -> usize {
        self.head_size * PAGE_TOKENS
    }

    /// Bytes of these elements: where the scales begin within a head's keys, or values.
    pub(super) fn element_bytes(&self) -> usize {
        self.head_elements() * self.kv_type.element_bytes()
    }

    /// Bytes of one head's keys, or values, in a page.
    pub(super) fn head_bytes(&self) -> usize {
        self.element_bytes() + PAGE_TOKENS * self.kv_type.scale_bytes()
    }

    /// Where a head's keys begin in a page.
    pub(super) fn keys(&self, head: usize) -> usize {
        self.offset + head * self.head_bytes()
    }

    /// Where a head's values begin in a page.
    pub(super) fn values(&self, head: usize) -> usize {
        self.offset + (self.kv_heads + head) * self.head_bytes()
    }
}

/// How a page is divided among the layers of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    pub(super) layers: Vec<KvLayer>,
    kv_type: KvType,
    page_bytes: usize,
}

impl KvLayout {
    /// For layers of (key/value heads, elements per head).
    ///
    /// # Panics
    /// If a head's size is not a multiple of 16: `head_size_supported` tells beforehand.
    #[must_use]
    pub fn new(kv_type: KvType, shapes: &[(usize, usize)]) -> Self {
        let mut offset = 0;
        let layers = shapes.iter().map(|&(kv_heads, head_size)| {
            assert!(
                Self::head_size_supported(head_size),
                "head size {head_size}"
            );
            let layer = KvLayer {
                kv_type,
                offset,
                kv_heads,
                head_size,
            };
            offset += 2 * kv_heads * layer.head_bytes();
            layer
        });
        let layers = layers.collect();
        Self {
            layers,
            kv_type,
            page_bytes: offset,
        }
    }

    /// Whether heads of this size can be paged: whole vectors, and not more than 1024.
    #[must_use]
    pub fn head_size_supported(head_size: usize) -> bool {
        head_size > 0 && head_size.is_multiple_of(16) && head_size <= HEAD_SIZE_MAX
    }

    #[must_use]
    pub fn kv_type(&self) -> KvType {
        self.kv_type
    }

    /// Bytes of one page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Bytes of one token's keys and values in each layer.
    pub fn token_bytes(&self) -> impl Iterator<Item = usize> {
        let layers = self.layers.iter();
        layers.map(|layer| 2 * layer.kv_heads * layer.head_bytes() / PAGE_TOKENS)
    }

    /// Copies the first `tokens` tokens of page `source` over those of page `target`.
    ///
    /// # Panics
    /// If a page lies outside `kv` or `tokens` exceeds a page.
    pub fn copy_tokens(&self, kv: &mut [u8], source: u32, target: u32, tokens: usize) {
        assert!(tokens <= PAGE_TOKENS, "a page has {PAGE_TOKENS} tokens");
        let source = source as usize * self.page_bytes;
        let target = target as usize * self.page_bytes;
        let mut copy = |at: usize, bytes: usize| {
            kv.copy_within(source + at..source + at + bytes, target + at);
        };
        let element = self.kv_type.element_bytes();
        let scales = tokens * self.kv_type.scale_bytes();
        for layer in &self.layers {
            for head in 0..layer.kv_heads {
                let (keys, values) = (layer.keys(head), layer.values(head));
                for row in 0..layer.head_size {
                    copy(keys + row * PAGE_TOKENS * element, tokens * element);
                }
                copy(values, tokens * layer.head_size * element);
                copy(keys + layer.element_bytes(), scales);
                copy(values + layer.element_bytes(), scales);
            }
        }
    }
}

/// Where the state of one row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvRow {
    pub page: u32,
    /// Token within the page.
    pub slot: u32,
}

impl Kernels {
    /// Writes the keys and values of `rows` into their pages. `keys` and `values` are
    /// (rows, `kv_heads`, `head_size`), keys already turned.
    ///
    /// Where a key is not finite, as given or once rounded, the values of that token and head
    /// are kept as NaN: the softmax would pass over such a key in silence.
    ///
    /// # Panics
    /// If a row lies outside `kv` or the shapes do not fit.
    pub fn kv_write(
        &self,
        pool: &Pool,
        (kv, layout, layer): (&mut [u8], &KvLayout, usize),
        rows: &[KvRow],
        (keys, values): (&[f32], &[f32]),
    ) {
        let layer = layout.layers[layer];
        let cols = layer.kv_heads * layer.head_size;
        assert_eq!(keys.len(), rows.len() * cols, "keys of every row");
        assert_eq!(values.len(), rows.len() * cols, "values of every row");
        let pages = Disjoint::new(kv);
        let write_head = |head: usize| {
            self.tier.launch(row::Writer {
                pages: &pages,
                page_bytes: layout.page_bytes,
                layer,
                head,
                rows,
                keys,
                values,
            });
        };
        if rows.len() < 8 {
            (0..layer.kv_heads).for_each(write_head);
        } else {
            pool.for_each(layer.kv_heads, &write_head);
        }
    }
}
