//! The tokens of a model: one blob of bytes and a hash index of `u32`, because a vocabulary
//! of 262144 strings in maps of their own would cost more memory than some models.
//!
//! ```text
//!   blob   h e l l o w o r l d ...      ends [5, 10, ...]     kinds [Normal, Normal, ...]
//!   slots  [ id | id | EMPTY | ... ]    open addressing, probed linearly
//! ```

use super::TextError;

/// What a token is, as `tokenizer.ggml.token_type` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenKind {
    /// Numbers outside the list count as unused.
    #[must_use]
    pub fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            6 => Self::Byte,
            _ => Self::Unused,
        }
    }
}

const EMPTY: u32 = u32::MAX;

/// Tokens by id, and ids by the bytes that text is matched with.
#[derive(Debug)]
pub(super) struct Vocabulary {
    blob: Box<[u8]>,
    /// (tokens) end of each token in `blob`.
    ends: Box<[u32]>,
    /// (tokens)
    kinds: Box<[TokenKind]>,
    /// (power of two)
    slots: Box<[u32]>,
    longest: usize,
}

impl Vocabulary {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// What the token prints, or its name if it is a control token.
    pub(super) fn bytes(&self, token: u32) -> Option<&[u8]> {
        let index = usize::try_from(token).ok()?;
        let end = *self.ends.get(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.blob.get(start as usize..end as usize)
    }

    pub(super) fn kind(&self, token: u32) -> Option<TokenKind> {
        self.kinds.get(usize::try_from(token).ok()?).copied()
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (u32, TokenKind)> {
        (0u32..).zip(self.kinds.iter().copied())
    }

    /// The token that text of exactly these bytes is.
    #[inline]
    pub(super) fn find(&self, bytes: &[u8]) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash(bytes) & mask;
        loop {
            let token = *self.slots.get(slot)?;
            if token == EMPTY {
                return None;
            }
            if self.bytes(token) == Some(bytes) {
                return Some(token);
            }
            slot = (slot + 1) & mask;
        }
    }
}

/// Folded multiplication of eight bytes at a time; good to the low bits, which index.
#[inline]
pub(super) fn hash(bytes: &[u8]) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = fold(bytes.len() as u64 ^ MULTIPLIER, MULTIPLIER);
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let tail = rest
        .iter()
        .fold(0, |tail, &byte| tail << 8 | u64::from(byte));
    let state = fold(state ^ tail, MULTIPLIER);
    usize::try_from(state >> 32).unwrap_or_default()
}

/// High and low half of the 128-bit product, combined.
#[inline]
pub(super) fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    let high = u64::try_from(product >> 64).unwrap_or_default();
    let low = u64::try_from(product & u128::from(u64::MAX)).unwrap_or_default();
    high ^ low
}

/// Collects tokens in the order of their ids.
#[derive(Debug)]
pub(super) struct VocabularyBuilder {
    blob: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    indexed: Vec<u32>,
    longest: usize,
}

impl VocabularyBuilder {
    /// `tokens` is a count that the caller has validated against the file.
    pub(super) fn with_capacity(tokens: usize) -> Self {
        Self {
            blob: Vec::new(),
            ends: Vec::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
            indexed: Vec::with_capacity(tokens),
            longest: 0,
        }
    }

    /// Adds the next token. Only an indexed one can be found by its bytes.
    ///
    /// # Errors
    /// `VocabularyTooLarge` if an offset leaves `u32`.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        kind: TokenKind,
        indexed: bool,
    ) -> Result<(), TextError> {
        let too_large = TextError::VocabularyTooLarge {
            tokens: self.ends.len(),
            bytes: self.blob.len(),
        };
        let Ok(id) = u32::try_from(self.ends.len()) else {
            return Err(too_large);
        };
        self.blob.extend_from_slice(bytes);
        let Ok(end) = u32::try_from(self.blob.len()) else {
            return Err(too_large);
        };
        self.ends.push(end);
        self.kinds.push(kind);
        if indexed && !bytes.is_empty() {
            self.indexed.push(id);
        }
        self.longest = self.longest.max(bytes.len());
        Ok(())
    }

    /// Builds the index. Of two equal tokens the later one is found.
    ///
    /// # Errors
    /// `VocabularyEmpty`.
    pub(super) fn build(self) -> Result<Vocabulary, TextError> {
        if self.ends.is_empty() {
            return Err(TextError::VocabularyEmpty);
        }
        // At most three quarters full, so that probes stay short.
        let capacity = (self.indexed.len() * 4 / 3 + 1).next_power_of_two();
        let mut vocabulary = Vocabulary {
            blob: self.blob.into_boxed_slice(),
            ends: self.ends.into_boxed_slice(),
            kinds: self.kinds.into_boxed_slice(),
            slots: vec![EMPTY; capacity].into_boxed_slice(),
            longest: self.longest,
        };
        for token in self.indexed {
            vocabulary.index(token);
        }
        Ok(vocabulary)
    }
}

impl Vocabulary {
    fn index(&mut self, token: u32) {
        let bytes = self.bytes(token);
        let mask = self.slots.len() - 1;
        let mut slot = hash(bytes.unwrap_or_default()) & mask;
        while let Some(&there) = self.slots.get(slot) {
            if there == EMPTY || self.bytes(there) == bytes {
                break;
            }
            slot = (slot + 1) & mask;
        }
        if let Some(there) = self.slots.get_mut(slot) {
            *there = token;
        }
    }
}

#[cfg(test)]
mod tests;
