//! Finds the tokens that are taken out of a text before anything else: control tokens where
//! the caller wants them parsed, and user-defined ones always.
//!
//! Longer tokens come first, wherever they stand: all occurrences of the longest, from left
//! to right, then those of the next length in what is left. That is the order of the
//! reference; it differs from leftmost-longest only where two such tokens overlap.

use super::vocabulary::{TokenKind, Vocabulary, hash};

const EMPTY: u32 = u32::MAX;

/// A set of byte values.
#[derive(Debug, Default, Clone, Copy)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }

    fn contains(&self, byte: u8) -> bool {
        self.0
            .get(usize::from(byte >> 6))
            .is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }
}

/// What all tokens of one length begin and end with, to skip most lookups.
#[derive(Debug)]
struct Length {
    bytes: usize,
    first: ByteSet,
    last: ByteSet,
}

/// The special tokens of a vocabulary, by length.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// Longest first.
    lengths: Vec<Length>,
    first: ByteSet,
    /// (power of two) tokens, open addressing.
    slots: Box<[u32]>,
}

/// A token found in a text, at its bytes `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) token: u32,
}

impl SpecialTokens {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let special: Vec<(u32, &[u8])> = vocabulary
            .kinds()
            .filter(|&(_, kind)| {
                matches!(
                    kind,
                    TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined
                )
            })
            .filter_map(|(token, _)| Some((token, vocabulary.bytes(token)?)))
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect();
        let capacity = (special.len() * 4 / 3 + 1).next_power_of_two();
        let mut slots = vec![EMPTY; capacity].into_boxed_slice();
        let mut lengths: Vec<Length> = Vec::new();
        let mut firsts = ByteSet::default();
        for (token, bytes) in special {
            let (&[first, ..], &[.., last]) = (bytes, bytes) else {
                continue;
            };
            firsts.insert(first);
            let known = lengths.iter().position(|known| known.bytes == bytes.len());
            let index = known.unwrap_or_else(|| {
                lengths.push(Length {
                    bytes: bytes.len(),
                    first: ByteSet::default(),
                    last: ByteSet::default(),
                });
                lengths.len() - 1
            });
            if let Some(length) = lengths.get_mut(index) {
                length.first.insert(first);
                length.last.insert(last);
            }
            insert(&mut slots, token, bytes);
        }
        lengths.sort_unstable_by_key(|length| std::cmp::Reverse(length.bytes));
        Self {
            lengths,
            first: firsts,
            slots,
        }
    }

    /// The special tokens in `text`, in order and without overlap. Control and unknown
    /// tokens only if `parse_special`.
    pub(super) fn find_all(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        parse_special: bool,
    ) -> Vec<Found> {
        let text = text.as_bytes();
        let starts: Vec<usize> = (0..)
            .zip(text)
            .filter(|(_, byte)| self.first.contains(**byte))
            .map(|(start, _)| start)
            .collect();
        if starts.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<Found> = Vec::new();
        let mut taken = Taken::new(text.len());
        for length in &self.lengths {
            for &start in &starts {
                let end = start + length.bytes;
                let Some(candidate) = text.get(start..end) else {
                    break;
                };
                if !length.may_be(candidate) || taken.overlaps(start, end) {
                    continue;
                }
                if let Some(token) = self.token(vocabulary, candidate, parse_special) {
                    taken.take(start, end);
                    found.push(Found { start, end, token });
                }
            }
        }
        found.sort_unstable_by_key(|found| found.start);
        found
    }

    fn token(&self, vocabulary: &Vocabulary, bytes: &[u8], parse_special: bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash(bytes) & mask;
        loop {
            let token = *self.slots.get(slot)?;
            if token == EMPTY {
                return None;
            }
            let wanted = parse_special || vocabulary.kind(token) == Some(TokenKind::UserDefined);
            if wanted && vocabulary.bytes(token) == Some(bytes) {
                return Some(token);
            }
            slot = (slot + 1) & mask;
        }
    }
}

impl Length {
    fn may_be(&self, candidate: &[u8]) -> bool {
        match (candidate, candidate) {
            (&[first, ..], &[.., last]) => self.first.contains(first) && self.last.contains(last),
            _ => false,
        }
    }
}

fn insert(slots: &mut [u32], token: u32, bytes: &[u8]) {
    let mask = slots.len() - 1;
    let mut slot = hash(bytes) & mask;
    while slots.get(slot).is_some_and(|&there| there != EMPTY) {
        slot = (slot + 1) & mask;
    }
    if let Some(there) = slots.get_mut(slot) {
        *there = token;
    }
}

/// One bit for each byte of the text that belongs to a found token.
struct Taken {
    words: Vec<u64>,
}

impl Taken {
    fn new(bytes: usize) -> Self {
        Self {
            words: vec![0; bytes / 64 + 1],
        }
    }

    fn is_taken(&self, position: usize) -> bool {
        self.words
            .get(position / 64)
            .is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// What is taken is never shorter than the question, so it cannot hide inside.
    fn overlaps(&self, start: usize, end: usize) -> bool {
        self.is_taken(start) || self.is_taken(end - 1)
    }

    fn take(&mut self, start: usize, end: usize) {
        for position in start..end {
            if let Some(word) = self.words.get_mut(position / 64) {
                *word |= 1 << (position % 64);
            }
        }
    }
}

#[cfg(test)]
mod tests;
