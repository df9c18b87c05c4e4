//! Byte-level byte pair encoding: a piece starts as one symbol per byte, and the adjacent
//! pair with the lowest rank is merged, the leftmost first, until no pair is known.
//!
//! A queue of candidate merges makes a piece of n bytes cost n log n, whatever is in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::TextError;
use super::vocabulary::{Vocabulary, fold};

const NONE: u32 = u32::MAX;

/// Known pairs of tokens, by rank.
#[derive(Debug)]
pub(super) struct Merges {
    /// (merges) left token, right token and what they make; the index is the rank.
    merges: Box<[[u32; 3]]>,
    /// (power of two) ranks, open addressing.
    slots: Box<[u32]>,
    /// Token of each single byte, or `NONE`.
    bytes: Box<[u32; 256]>,
}

impl Merges {
    /// `pairs` come in the order of their ranks; of equal ones the first counts.
    pub(super) fn new(vocabulary: &Vocabulary, merges: Vec<[u32; 3]>) -> Self {
        let capacity = (merges.len() * 4 / 3 + 1).next_power_of_two();
        let mut slots = vec![NONE; capacity].into_boxed_slice();
        let mask = capacity - 1;
        for (rank, &[left, right, _]) in (0u32..).zip(&merges) {
            let mut slot = hash_pair(left, right) & mask;
            while let Some(there) = slots.get_mut(slot) {
                if *there == NONE {
                    *there = rank;
                    break;
                }
                let known = merges.get(*there as usize);
                if known.is_some_and(|&[l, r, _]| (l, r) == (left, right)) {
                    break;
                }
                slot = (slot + 1) & mask;
            }
        }
        let mut bytes = Box::new([NONE; 256]);
        for (byte, token) in (0..=u8::MAX).zip(bytes.iter_mut()) {
            *token = vocabulary.find(&[byte]).unwrap_or(NONE);
        }
        Self {
            merges: merges.into_boxed_slice(),
            slots,
            bytes,
        }
    }

    /// Rank and result of merging two tokens.
    #[inline]
    fn find(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let mask = self.slots.len() - 1;
        let mut slot = hash_pair(left, right) & mask;
        loop {
            let rank = *self.slots.get(slot)?;
            let &[l, r, merged] = self.merges.get(rank as usize)?;
            if (l, r) == (left, right) {
                return Some((rank, merged));
            }
            slot = (slot + 1) & mask;
        }
    }
}

#[inline]
fn hash_pair(left: u32, right: u32) -> usize {
    let pair = u64::from(left) << 32 | u64::from(right);
    let hash = fold(pair ^ 0x517c_c1b7_2722_0a95, 0x9e37_79b9_7f4a_7c15);
    usize::try_from(hash >> 32).unwrap_or_default()
}

/// A token of the piece, linked to its neighbours; merged into the left one it is `NONE`.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    token: u32,
    previous: u32,
    next: u32,
}

/// Working memory of one text, reused from piece to piece.
#[derive(Debug, Default)]
pub(super) struct BytePairEncoder {
    symbols: Vec<Symbol>,
    /// Candidate merges as rank, then index of the left symbol: the lowest comes first.
    queue: BinaryHeap<Reverse<u64>>,
}

impl BytePairEncoder {
    /// Appends the tokens of `piece` to `tokens`. A byte that the vocabulary lacks, as many
    /// lack some control characters, gives no token and takes part in no merge.
    ///
    /// # Errors
    /// `TextTooLong` beyond four gigabytes.
    pub(super) fn encode(
        &mut self,
        merges: &Merges,
        piece: &[u8],
        tokens: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        self.start(merges, piece)?;
        for left in 1..self.symbols.len() {
            self.offer(merges, left - 1);
        }
        while let Some(Reverse(candidate)) = self.queue.pop() {
            self.merge(merges, candidate);
        }
        tokens.extend(
            self.symbols
                .iter()
                .map(|symbol| symbol.token)
                .filter(|&token| token != NONE),
        );
        Ok(())
    }

    fn start(&mut self, merges: &Merges, piece: &[u8]) -> Result<(), TextError> {
        let bytes = piece.len();
        let count = u32::try_from(bytes).map_err(|_overflow| TextError::TextTooLong { bytes })?;
        self.symbols.clear();
        self.queue.clear();
        for (index, &byte) in (0..count).zip(piece) {
            let token = merges.bytes.get(usize::from(byte)).copied().unwrap_or(NONE);
            self.symbols.push(Symbol {
                token,
                previous: index.checked_sub(1).unwrap_or(NONE),
                next: if index + 1 == count { NONE } else { index + 1 },
            });
        }
        Ok(())
    }

    /// Queues the pair that begins at `left`, if it can be merged.
    fn offer(&mut self, merges: &Merges, left: usize) {
        if let Some((rank, _, _)) = self.pair(merges, left) {
            self.queue
                .push(Reverse(u64::from(rank) << 32 | left as u64));
        }
    }

    /// Rank, result and right symbol of the pair that now begins at `left`.
    fn pair(&self, merges: &Merges, left: usize) -> Option<(u32, u32, usize)> {
        let symbol = self.symbols.get(left)?;
        let right = symbol.next as usize;
        let (rank, merged) = merges.find(symbol.token, self.symbols.get(right)?.token)?;
        Some((rank, merged, right))
    }

    /// Does a candidate merge, unless one of its symbols has changed since it was queued:
    /// then the pair there, if any, has another rank.
    fn merge(&mut self, merges: &Merges, candidate: u64) {
        let left = usize::try_from(candidate & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let Some((rank, merged, right)) = self.pair(merges, left) else {
            return;
        };
        if u64::from(rank) != candidate >> 32 {
            return;
        }
        let after = match self.symbols.get_mut(right) {
            Some(symbol) => {
                symbol.token = NONE;
                symbol.next
            }
            None => return,
        };
        let left_index = u32::try_from(left).unwrap_or(NONE);
        if let Some(symbol) = self.symbols.get_mut(after as usize) {
            symbol.previous = left_index;
        }
        let mut before = NONE;
        if let Some(symbol) = self.symbols.get_mut(left) {
            symbol.token = merged;
            symbol.next = after;
            before = symbol.previous;
        }
        self.offer(merges, before as usize);
        self.offer(merges, left);
    }
}

#[cfg(test)]
mod tests;
