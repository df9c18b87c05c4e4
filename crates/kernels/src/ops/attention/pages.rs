//! What attention reads of the pages.

use crate::ops::kv::{KvLayer, PAGE_TOKENS};

/// Pages of a sequence, seen by one key/value head.
#[derive(Clone, Copy)]
pub(super) struct Pages<'a> {
    pub(super) kv: &'a [u8],
    pub(super) page_bytes: usize,
    pub(super) layer: KvLayer,
    pub(super) head: usize,
    pub(super) table: &'a [u32],
}

impl<'a> Pages<'a> {
    /// Keys and values of a block.
    pub(super) fn block(&self, block: usize) -> [Side<'a>; 2] {
        let page = self.table[block] as usize * self.page_bytes;
        [self.layer.keys(self.head), self.layer.values(self.head)].map(|start| {
            let bytes = &self.kv[page + start..][..self.layer.head_bytes()];
            let (elements, scales) = bytes.split_at(self.layer.element_bytes());
            Side { elements, scales }
        })
    }
}

/// Keys or values of a block, as the page holds them.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) elements: &'a [u8],
    /// Empty if the type has none.
    scales: &'a [u8],
}

impl Side<'_> {
    /// The scale of each token.
    #[inline(always)]
    pub(super) fn scales(&self) -> Option<[f32; PAGE_TOKENS]> {
        let scales: &[[u8; 4]; PAGE_TOKENS] = self.scales.as_chunks().0.first_chunk()?;
        Some(scales.map(f32::from_le_bytes))
    }
}
