//! General categories of code points, as pre-tokenizers ask for them.
//!
//! Every code point has exactly one kind, so a class of characters is a bit mask over kinds.
//! Space and line ends are kinds of their own because the rules single them out.

use regex_syntax::hir::{Class, HirKind};

use crate::text::TextError;

/// Bits of a class. The names follow Unicode's general categories.
pub(super) mod kind {
    pub(in crate::text) const UPPERCASE: u16 = 1;
    pub(in crate::text) const LOWERCASE: u16 = 1 << 1;
    pub(in crate::text) const TITLECASE: u16 = 1 << 2;
    pub(in crate::text) const MODIFIER: u16 = 1 << 3;
    pub(in crate::text) const OTHER_LETTER: u16 = 1 << 4;
    pub(in crate::text) const MARK: u16 = 1 << 5;
    pub(in crate::text) const NUMBER: u16 = 1 << 6;
    pub(in crate::text) const PUNCTUATION: u16 = 1 << 7;
    pub(in crate::text) const SYMBOL: u16 = 1 << 8;
    /// U+0020 alone.
    pub(in crate::text) const SPACE: u16 = 1 << 9;
    /// `\r` and `\n`.
    pub(in crate::text) const LINE_END: u16 = 1 << 10;
    /// All other White_Space.
    pub(in crate::text) const OTHER_WHITE: u16 = 1 << 11;
    /// Control, format, unassigned, private use.
    pub(in crate::text) const OTHER: u16 = 1 << 12;

    pub(in crate::text) const LETTER: u16 =
        UPPERCASE | LOWERCASE | TITLECASE | MODIFIER | OTHER_LETTER;
    pub(in crate::text) const WHITE: u16 = SPACE | LINE_END | OTHER_WHITE;
    pub(in crate::text) const ALL: u16 = (1 << 13) - 1;
}

const BLOCK: usize = 256;
const CODE_POINTS: usize = 0x11_0000;

/// Kind bit of every code point: a two-level table in which equal blocks are stored once.
#[derive(Debug)]
pub(super) struct CharacterKinds {
    /// Block of each run of 256 code points.
    blocks: Box<[u16]>,
    /// (block, 256) kind bits.
    kinds: Box<[u16]>,
}

impl CharacterKinds {
    /// Expands the category tables of `regex-syntax`; about a millisecond.
    pub(super) fn new() -> Result<Self, TextError> {
        let mut flat = vec![kind::OTHER; CODE_POINTS];
        let categories = [
            (r"\p{Lu}", kind::UPPERCASE),
            (r"\p{Ll}", kind::LOWERCASE),
            (r"\p{Lt}", kind::TITLECASE),
            (r"\p{Lm}", kind::MODIFIER),
            (r"\p{Lo}", kind::OTHER_LETTER),
            (r"\p{M}", kind::MARK),
            (r"\p{N}", kind::NUMBER),
            (r"\p{P}", kind::PUNCTUATION),
            (r"\p{S}", kind::SYMBOL),
            (r"\s", kind::OTHER_WHITE),
            (r"[ ]", kind::SPACE),
            (r"[\r\n]", kind::LINE_END),
        ];
        for (pattern, bit) in categories {
            for (first, last) in ranges(pattern)? {
                if let Some(run) = flat.get_mut(first..=last) {
                    run.fill(bit);
                }
            }
        }
        Ok(Self::compress(&flat))
    }

    fn compress(flat: &[u16]) -> Self {
        let mut kinds: Vec<u16> = Vec::new();
        let mut blocks = Vec::with_capacity(CODE_POINTS / BLOCK);
        for block in flat.chunks(BLOCK) {
            let known = kinds.chunks(BLOCK).position(|stored| stored == block);
            let index = known.unwrap_or_else(|| {
                kinds.extend_from_slice(block);
                kinds.len() / BLOCK - 1
            });
            // At most 4352 blocks exist.
            blocks.push(u16::try_from(index).unwrap_or_default());
        }
        Self {
            blocks: blocks.into_boxed_slice(),
            kinds: kinds.into_boxed_slice(),
        }
    }

    /// The kind bit of `character`.
    #[inline]
    pub(super) fn of(&self, character: char) -> u16 {
        let code = character as usize;
        let block = self.blocks.get(code / BLOCK).copied().unwrap_or_default();
        self.kinds
            .get(usize::from(block) * BLOCK + code % BLOCK)
            .copied()
            .unwrap_or(kind::OTHER)
    }
}

/// Code point ranges, ends included, of a pattern that is one character class.
fn ranges(pattern: &'static str) -> Result<Vec<(usize, usize)>, TextError> {
    let missing = TextError::UnicodeTable { pattern };
    let Ok(parsed) = regex_syntax::parse(pattern) else {
        return Err(missing);
    };
    match parsed.kind() {
        HirKind::Class(Class::Unicode(class)) => Ok(class
            .ranges()
            .iter()
            .map(|range| (range.start() as usize, range.end() as usize))
            .collect()),
        // A class of a single character is a literal to the parser.
        HirKind::Literal(literal) => match literal.0.first() {
            Some(&byte) => Ok(vec![(usize::from(byte), usize::from(byte))]),
            None => Err(missing),
        },
        _ => Err(missing),
    }
}
