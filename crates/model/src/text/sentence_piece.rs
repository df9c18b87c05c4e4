//! SentencePiece's bigram merging, driven by scores: a text starts as one symbol per
//! character, and of all adjacent pairs whose concatenation is a token, the one with the
//! highest score is merged, the leftmost first, until none is left. A character that is no
//! token becomes its bytes.
//!
//! The space is U+2581 to such a vocabulary. Here both are the space: tokens are stored as
//! they print, and a text's U+2581 is read as a space, which is the same to every lookup.
//!
//! No merge can cross a place between two characters that stand together in no token, and
//! merges on both sides of it do not see each other. So the text is cut there first, which
//! leaves little more than words, and the queue stays short.

use std::collections::BinaryHeap;

use super::TextError;
use super::vocabulary::{TokenKind, Vocabulary, fold};

const NONE: u32 = u32::MAX;
const SPACE_MARK: char = '\u{2581}';

/// Scores and byte tokens beside a vocabulary.
#[derive(Debug)]
pub(super) struct Pieces {
    /// (tokens) scores in the order of their values.
    scores: Box<[u32]>,
    /// Token of each byte, or `NONE`.
    bytes: Box<[u32; 256]>,
    pairs: CharacterPairs,
}

impl Pieces {
    /// # Errors
    /// `LengthMismatch` and `ScoreNotFinite`.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        scores: impl Iterator<Item = f32>,
    ) -> Result<Self, TextError> {
        let mut ordered = Vec::with_capacity(vocabulary.len());
        for (token, score) in (0u32..).zip(scores) {
            if !score.is_finite() {
                return Err(TextError::ScoreNotFinite { token });
            }
            ordered.push(ordered_bits(score));
        }
        if ordered.len() != vocabulary.len() {
            return Err(TextError::LengthMismatch {
                key: "tokenizer.ggml.scores",
                found: ordered.len(),
                tokens: vocabulary.len(),
            });
        }
        let mut bytes = Box::new([NONE; 256]);
        let mut pairs = CharacterPairs::new();
        for (token, kind) in vocabulary.kinds() {
            let text = vocabulary.bytes(token).unwrap_or_default();
            match (kind, text) {
                (TokenKind::Byte, &[byte]) => {
                    if let Some(entry) = bytes.get_mut(usize::from(byte)) {
                        *entry = token;
                    }
                }
                _ => pairs.insert_all(text),
            }
        }
        Ok(Self {
            scores: ordered.into_boxed_slice(),
            bytes,
            pairs,
        })
    }
}

/// Bits that compare as unsigned integers as the finite `score` does; both zeros are equal.
fn ordered_bits(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// Which two characters stand together in some token: a filter with false positives, which
/// cost only longer pieces, and no false negatives.
#[derive(Debug)]
struct CharacterPairs {
    bits: Box<[u64]>,
}

impl CharacterPairs {
    const WORDS: usize = 1 << 14;

    fn new() -> Self {
        Self {
            bits: vec![0; Self::WORDS].into_boxed_slice(),
        }
    }

    fn place(left: char, right: char) -> (usize, u64) {
        let pair = u64::from(u32::from(left)) << 32 | u64::from(u32::from(right));
        let hash = fold(pair ^ 0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15);
        let word = usize::try_from(hash >> 32).unwrap_or_default() % Self::WORDS;
        (word, 1 << (hash & 63))
    }

    fn insert_all(&mut self, token: &[u8]) {
        let Ok(text) = std::str::from_utf8(token) else {
            return;
        };
        for (left, right) in text.chars().zip(text.chars().skip(1)) {
            let (word, bit) = Self::place(left, right);
            if let Some(bits) = self.bits.get_mut(word) {
                *bits |= bit;
            }
        }
    }

    #[inline]
    fn contains(&self, left: char, right: char) -> bool {
        let (word, bit) = Self::place(left, right);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

/// A run of the piece's bytes, linked to its neighbours; merged into the left one it is empty.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    length: u32,
    previous: u32,
    next: u32,
}

/// A pair that makes a token: highest score first, then the leftmost. The derived order
/// compares the fields from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    score: u32,
    /// Complement of the left symbol's index.
    left: u32,
    /// Bytes of the pair; another number at the time of merging means that it has changed.
    length: u32,
}

/// Working memory of one text, reused from piece to piece.
#[derive(Debug, Default)]
pub(super) struct SentencePieceEncoder {
    /// The text with U+2581 as spaces.
    text: String,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

impl SentencePieceEncoder {
    /// Appends the tokens of `text` to `tokens`, as if a space stood before it if `prefix`.
    ///
    /// # Errors
    /// `NoTokenForByte` if a character and one of its bytes are both unknown.
    pub(super) fn encode(
        &mut self,
        (vocabulary, pieces): (&Vocabulary, &Pieces),
        prefix: bool,
        text: &str,
        tokens: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let mut plain = std::mem::take(&mut self.text);
        plain.clear();
        if prefix {
            plain.push(' ');
        }
        for part in text.split_inclusive(SPACE_MARK) {
            match part.strip_suffix(SPACE_MARK) {
                Some(before) => {
                    plain.push_str(before);
                    plain.push(' ');
                }
                None => plain.push_str(part),
            }
        }
        let mut start = 0;
        let mut last = None;
        let mut result = Ok(());
        for (offset, character) in plain.char_indices() {
            let joined = last.is_none_or(|last| pieces.pairs.contains(last, character));
            last = Some(character);
            if !joined {
                let piece = plain.get(start..offset).unwrap_or_default();
                result = result.and_then(|()| self.merge_piece(vocabulary, pieces, piece, tokens));
                start = offset;
            }
        }
        let piece = plain.get(start..).unwrap_or_default();
        result = result.and_then(|()| self.merge_piece(vocabulary, pieces, piece, tokens));
        self.text = plain;
        result
    }

    fn merge_piece(
        &mut self,
        vocabulary: &Vocabulary,
        pieces: &Pieces,
        piece: &str,
        tokens: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let bytes = piece.len();
        let count = u32::try_from(bytes).map_err(|_overflow| TextError::TextTooLong { bytes })?;
        let scored = Scored {
            vocabulary,
            pieces,
            piece: piece.as_bytes(),
        };
        self.start(piece, count);
        for left in 1..self.symbols.len() {
            self.offer(&scored, left - 1);
        }
        while let Some(candidate) = self.queue.pop() {
            self.merge(&scored, candidate);
        }
        for symbol in self.symbols.iter().filter(|symbol| symbol.length > 0) {
            let text = scored.text(symbol.start, symbol.length);
            match vocabulary.find(text) {
                Some(token) => tokens.push(token),
                None => push_bytes(pieces, text, tokens)?,
            }
        }
        Ok(())
    }

    fn start(&mut self, piece: &str, bytes: u32) {
        self.symbols.clear();
        self.queue.clear();
        let mut index = 0u32;
        for (start, character) in (0..bytes).zip(piece.bytes()) {
            // A continuation byte belongs to the character that is there already.
            if character & 0xc0 == 0x80 {
                if let Some(symbol) = self.symbols.last_mut() {
                    symbol.length += 1;
                }
                continue;
            }
            self.symbols.push(Symbol {
                start,
                length: 1,
                previous: index.checked_sub(1).unwrap_or(NONE),
                next: index + 1,
            });
            index += 1;
        }
        if let Some(symbol) = self.symbols.last_mut() {
            symbol.next = NONE;
        }
    }

    /// Queues the pair that begins at `left`, if it makes a token.
    fn offer(&mut self, scored: &Scored<'_>, left: usize) {
        let Some(symbol) = self.symbols.get(left) else {
            return;
        };
        let Some(right) = self.symbols.get(symbol.next as usize) else {
            return;
        };
        let length = symbol.length + right.length;
        if let Some(score) = scored.score(symbol.start, length) {
            self.queue.push(Candidate {
                score,
                left: !u32::try_from(left).unwrap_or(NONE),
                length,
            });
        }
    }

    /// Does a candidate merge, unless one of its symbols has changed since it was queued.
    fn merge(&mut self, scored: &Scored<'_>, candidate: Candidate) {
        let left_index = !candidate.left;
        let left = left_index as usize;
        let Some(&Symbol {
            length,
            previous,
            next,
            ..
        }) = self.symbols.get(left)
        else {
            return;
        };
        let Some(right) = self.symbols.get_mut(next as usize) else {
            return;
        };
        if length == 0 || length + right.length != candidate.length {
            return;
        }
        right.length = 0;
        let after = right.next;
        if let Some(symbol) = self.symbols.get_mut(after as usize) {
            symbol.previous = left_index;
        }
        if let Some(symbol) = self.symbols.get_mut(left) {
            symbol.length = candidate.length;
            symbol.next = after;
        }
        self.offer(scored, previous as usize);
        self.offer(scored, left);
    }
}

/// A piece beside what its parts are looked up in.
struct Scored<'a> {
    vocabulary: &'a Vocabulary,
    pieces: &'a Pieces,
    piece: &'a [u8],
}

impl Scored<'_> {
    fn text(&self, start: u32, length: u32) -> &[u8] {
        let range = start as usize..(start + length) as usize;
        self.piece.get(range).unwrap_or_default()
    }

    fn score(&self, start: u32, length: u32) -> Option<u32> {
        let token = self.vocabulary.find(self.text(start, length))?;
        self.pieces.scores.get(token as usize).copied()
    }
}

/// The byte tokens of a character that is no token itself.
fn push_bytes(pieces: &Pieces, text: &[u8], tokens: &mut Vec<u32>) -> Result<(), TextError> {
    // Where the vocabulary has no space, the file's stand-in for it is spelled out.
    let mut mark = [0; 4];
    let spelled = match text {
        b" " => SPACE_MARK.encode_utf8(&mut mark).as_bytes(),
        _ => text,
    };
    for &byte in spelled {
        let token = pieces.bytes.get(usize::from(byte)).copied().unwrap_or(NONE);
        if token == NONE {
            return Err(TextError::NoTokenForByte { byte });
        }
        tokens.push(token);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
