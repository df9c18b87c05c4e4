//! Pages of key and value state.
//!
//! A page holds 64 tokens of all layers, as half floats. Within a page, layer after layer:
//!
//! ```text
//!   K  (kv_head, head_size, 64)     lane = token: a score is a chain over head_size
//!   V  (kv_head, 64, head_size)     lane = element: an output is a chain over tokens
//! ```

#![expect(unsafe_code, reason = "heads write disjoint parts of the pages")]

use crate::pool::Disjoint;
use crate::simd::half;
use crate::{Kernels, Pool};

/// Tokens of one page.
pub const PAGE_TOKENS: usize = 64;

/// Where a layer's part begins within a page, in elements, and its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KvLayer {
    pub(super) offset: usize,
    pub(super) kv_heads: usize,
    pub(super) head_size: usize,
}

impl KvLayer {
    /// Elements of one head's keys, or values, in a page.
    pub(super) fn head_elements(&self) -> usize {
        self.head_size * PAGE_TOKENS
    }

    /// Where a head's keys begin in a page.
    pub(super) fn keys(&self, head: usize) -> usize {
        self.offset + head * self.head_elements()
    }

    /// Where a head's values begin in a page.
    pub(super) fn values(&self, head: usize) -> usize {
        self.offset + (self.kv_heads + head) * self.head_elements()
    }
}

/// How a page is divided among the layers of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    pub(super) layers: Vec<KvLayer>,
    page_elements: usize,
}

impl KvLayout {
    /// For layers of (key/value heads, elements per head).
    ///
    /// # Panics
    /// If a head's size is not a multiple of 16: `head_size_supported` tells beforehand.
    #[must_use]
    pub fn new(shapes: &[(usize, usize)]) -> Self {
        let mut offset = 0;
        let layers = shapes.iter().map(|&(kv_heads, head_size)| {
            assert!(
                Self::head_size_supported(head_size),
                "head size {head_size}"
            );
            let layer = KvLayer {
                offset,
                kv_heads,
                head_size,
            };
            offset += 2 * kv_heads * layer.head_elements();
            layer
        });
        let layers = layers.collect();
        Self {
            layers,
            page_elements: offset,
        }
    }

    /// Whether heads of this size can be paged: whole vectors, and not more than 1024.
    #[must_use]
    pub fn head_size_supported(head_size: usize) -> bool {
        head_size > 0 && head_size.is_multiple_of(16) && head_size <= 1024
    }

    /// Half floats in one page.
    #[must_use]
    pub fn page_elements(&self) -> usize {
        self.page_elements
    }

    /// Bytes of one page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_elements * size_of::<u16>()
    }

    /// Bytes of one token's keys and values in each layer.
    pub fn token_bytes(&self) -> impl Iterator<Item = usize> {
        let layers = self.layers.iter();
        layers.map(|layer| 2 * layer.kv_heads * layer.head_size * size_of::<u16>())
    }

    /// Copies the first `tokens` tokens of page `source` over those of page `target`.
    ///
    /// # Panics
    /// If a page lies outside `kv` or `tokens` exceeds a page.
    pub fn copy_tokens(&self, kv: &mut [u16], source: u32, target: u32, tokens: usize) {
        assert!(tokens <= PAGE_TOKENS, "a page has {PAGE_TOKENS} tokens");
        let (source, target) = (source as usize, target as usize);
        for layer in &self.layers {
            for head in 0..layer.kv_heads {
                for element in 0..layer.head_size {
                    let row = layer.keys(head) + element * PAGE_TOKENS;
                    let from = source * self.page_elements + row;
                    kv.copy_within(from..from + tokens, target * self.page_elements + row);
                }
                let from = source * self.page_elements + layer.values(head);
                let to = target * self.page_elements + layer.values(head);
                kv.copy_within(from..from + tokens * layer.head_size, to);
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
    /// # Panics
    /// If a row lies outside `kv` or the shapes do not fit.
    pub fn kv_write(
        &self,
        pool: &Pool,
        (kv, layout, layer): (&mut [u16], &KvLayout, usize),
        rows: &[KvRow],
        (keys, values): (&[f32], &[f32]),
    ) {
        let layer = layout.layers[layer];
        let cols = layer.kv_heads * layer.head_size;
        assert_eq!(keys.len(), rows.len() * cols, "keys of every row");
        assert_eq!(values.len(), rows.len() * cols, "values of every row");
        let pages = Disjoint::new(kv);
        let write_head = |head: usize| {
            let (size, elements) = (layer.head_size, layer.head_elements());
            for (row, place) in rows.iter().enumerate() {
                let slot = place.slot as usize;
                assert!(slot < PAGE_TOKENS, "slot {slot} of a page");
                let page = place.page as usize * layout.page_elements;
                let source = row * cols + head * size;
                let start = page + layer.keys(head);
                // SAFETY: a head's part of a page is touched by this call alone.
                let target = unsafe { pages.slice(start..start + elements) };
                for (element, key) in keys[source..source + size].iter().enumerate() {
                    target[element * PAGE_TOKENS + slot] = half::f32_to_f16(*key);
                }
                let start = page + layer.values(head) + slot * size;
                // SAFETY: as above.
                let target = unsafe { pages.slice(start..start + size) };
                for (value, target) in values[source..source + size].iter().zip(target) {
                    *target = half::f32_to_f16(*value);
                }
            }
        };
        if rows.len() < 8 {
            (0..layer.kv_heads).for_each(write_head);
        } else {
            pool.for_each(layer.kv_heads, &write_head);
        }
    }
}
