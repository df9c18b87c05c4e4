//! Text to token ids, built from the metadata of a model file.

use std::collections::BTreeSet;

use relight_gguf::{Metadata, Optional};

use super::TextError;
use super::byte_alphabet::ByteAlphabet;
use super::byte_pair::{BytePairEncoder, Merges};
use super::end_tokens::{end_tokens, is_known_end};
use super::pre_tokenizer::PreTokenizer;
use super::sentence_piece::{Pieces, SentencePieceEncoder};
use super::special_tokens::SpecialTokens;
use super::vocabulary::{TokenKind, Vocabulary, VocabularyBuilder};

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";

/// How a vocabulary is applied to plain text.
#[derive(Debug)]
enum Algorithm {
    /// `gpt2`
    BytePair {
        merges: Merges,
        pre_tokenizer: PreTokenizer,
    },
    /// `llama`
    SentencePiece { pieces: Pieces, space_prefix: bool },
}

/// Which special parts of a text `Tokenizer::encode` handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add BOS and EOS as the model wants them. Not for a rendered chat: its template has
    /// written what belongs there.
    pub add_special: bool,
    /// Read the names of control tokens in the text as those tokens.
    pub parse_special: bool,
}

/// A model's vocabulary and how text is cut into it.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    special: SpecialTokens,
    algorithm: Algorithm,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// The template family's special tokens swallow white space after them (Phi-3).
    strip_after_special: bool,
    end_tokens: BTreeSet<u32>,
}

impl Tokenizer {
    /// Reads the `tokenizer.ggml` keys of a model file.
    ///
    /// # Errors
    /// Every `TextError` that speaks of the file.
    pub fn from_gguf(metadata: &Metadata<'_>) -> Result<Self, TextError> {
        let model = metadata.str("tokenizer.ggml.model")?;
        match model {
            "gpt2" => Self::byte_pair(metadata),
            "llama" => Self::sentence_piece(metadata),
            _ => Err(TextError::UnknownModel {
                found: model.to_owned(),
            }),
        }
    }

    fn byte_pair(metadata: &Metadata<'_>) -> Result<Self, TextError> {
        let pre = metadata.str("tokenizer.ggml.pre").optional()?;
        let pre_tokenizer = PreTokenizer::named(pre.unwrap_or("default"))?;
        let alphabet = ByteAlphabet::new();
        let mut bytes = Vec::new();
        let vocabulary = read_vocabulary(metadata, &mut |token, kind, builder| match kind {
            TokenKind::Normal if alphabet.decode(token, &mut bytes) => {
                builder.push(&bytes, kind, true)
            }
            // Merges can reach a user-defined token only where it is spelled in the alphabet
            // as in the text; the others are found before any merging.
            TokenKind::UserDefined => {
                let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
                builder.push(token.as_bytes(), kind, plain)
            }
            _ => builder.push(token.as_bytes(), kind, false),
        })?;
        let merges = read_merges(metadata, &alphabet, &vocabulary)?;
        let add_bos = pre_tokenizer.add_bos();
        let algorithm = Algorithm::BytePair {
            merges: Merges::new(&vocabulary, merges),
            pre_tokenizer,
        };
        Self::finish(metadata, vocabulary, algorithm, add_bos)
    }

    fn sentence_piece(metadata: &Metadata<'_>) -> Result<Self, TextError> {
        let mut printed = String::new();
        let vocabulary = read_vocabulary(metadata, &mut |token, kind, builder| match kind {
            TokenKind::Normal => {
                printed.clear();
                let print = |mark| if mark == '\u{2581}' { ' ' } else { mark };
                printed.extend(token.chars().map(print));
                builder.push(printed.as_bytes(), kind, !token.contains(' '))
            }
            TokenKind::Byte => match byte_of(token) {
                Some(byte) => builder.push(&[byte], kind, false),
                None => builder.push(token.as_bytes(), kind, false),
            },
            TokenKind::UserDefined => {
                builder.push(token.as_bytes(), kind, !token.contains([' ', '\u{2581}']))
            }
            _ => builder.push(token.as_bytes(), kind, false),
        })?;
        let pieces = Pieces::new(&vocabulary, metadata.f32s(SCORES)?)?;
        let space_prefix = metadata
            .bool("tokenizer.ggml.add_space_prefix")
            .optional()?;
        let algorithm = Algorithm::SentencePiece {
            pieces,
            space_prefix: space_prefix.unwrap_or(true),
        };
        Self::finish(metadata, vocabulary, algorithm, true)
    }

    fn finish(
        metadata: &Metadata<'_>,
        vocabulary: Vocabulary,
        algorithm: Algorithm,
        add_bos_default: bool,
    ) -> Result<Self, TextError> {
        // SentencePiece's own numbering, where the file is silent.
        let usual = |token| matches!(algorithm, Algorithm::SentencePiece { .. }).then_some(token);
        let bos = token_id(metadata, BOS, vocabulary.len())?.or_else(|| usual(1));
        let eos = token_id(metadata, EOS, vocabulary.len())?.or_else(|| usual(2));
        let add_bos = metadata.bool("tokenizer.ggml.add_bos_token").optional()?;
        let add_eos = metadata.bool("tokenizer.ggml.add_eos_token").optional()?;
        let add_bos = add_bos.unwrap_or(add_bos_default);
        let add_eos = add_eos.unwrap_or(false);
        if (add_bos && bos.is_none()) || (add_eos && eos.is_none()) {
            return Err(TextError::NoBoundaryToken);
        }
        let name = metadata.str("general.name").optional()?.unwrap_or_default();
        let name = name.to_ascii_lowercase();
        Ok(Self {
            special: SpecialTokens::new(&vocabulary),
            end_tokens: end_tokens(metadata, &vocabulary, eos)?,
            vocabulary,
            algorithm,
            bos,
            eos,
            add_bos,
            add_eos,
            strip_after_special: name.contains("phi-3") || name.contains("phi3"),
        })
    }

    /// Token ids of `text`. Time is within a logarithm of linear in its length.
    ///
    /// # Errors
    /// `NoTokenForByte` or `TextTooLong`.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TextError> {
        let mut tokens = Vec::new();
        if options.add_special && self.add_bos {
            tokens.extend(self.bos);
        }
        let found = self
            .special
            .find_all(&self.vocabulary, text, options.parse_special);
        let mut plain = PlainEncoder::new(self);
        let mut start = 0;
        for special in found {
            plain.encode(text.get(start..special.start), &mut tokens)?;
            tokens.push(special.token);
            plain.follows_special = true;
            start = special.end;
            if self.strip_after_special && self.strips(special.token) {
                let rest = text.get(start..).unwrap_or_default();
                start = text.len() - rest.trim_start_matches(is_c_space).len();
            }
        }
        plain.encode(text.get(start..), &mut tokens)?;
        if options.add_special && self.add_eos {
            tokens.extend(self.eos);
        }
        Ok(tokens)
    }

    /// Whether white space after this token is dropped, in models that do so at all.
    fn strips(&self, token: u32) -> bool {
        !matches!(
            self.vocabulary.bytes(token),
            Some(b"<unk>" | b"<s>" | b"<|endoftext|>")
        )
    }

    /// Tokens in the vocabulary.
    #[must_use]
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// What a token prints; a control token prints its name here and nothing in a
    /// `Detokenizer`. `None` outside the vocabulary.
    #[must_use]
    pub fn token_bytes(&self, token: u32) -> Option<&[u8]> {
        self.vocabulary.bytes(token)
    }

    /// Bytes of the longest token: a text of n bytes is at least n / this many tokens.
    #[must_use]
    pub fn longest_token_bytes(&self) -> usize {
        self.vocabulary.longest()
    }

    /// What kind of token this is. `None` outside the vocabulary.
    #[must_use]
    pub fn kind(&self, token: u32) -> Option<TokenKind> {
        self.vocabulary.kind(token)
    }

    /// Whether the token is no text of its own.
    #[must_use]
    pub fn is_control(&self, token: u32) -> bool {
        matches!(
            self.vocabulary.kind(token),
            Some(TokenKind::Control | TokenKind::Unknown)
        )
    }

    /// Whether a model that emits this token has finished.
    #[must_use]
    pub fn is_end_of_generation(&self, token: u32) -> bool {
        self.end_tokens.contains(&token)
    }

    /// All tokens that finish a generation, ascending.
    pub fn end_of_generation(&self) -> impl Iterator<Item = u32> {
        self.end_tokens.iter().copied()
    }

    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether BOS is put before plain text.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a text that starts without a space gets one, which decoding takes away again.
    #[must_use]
    pub fn adds_space_prefix(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::SentencePiece {
                space_prefix: true,
                ..
            }
        )
    }
}

/// White space to C's `isspace`.
fn is_c_space(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}

/// Encodes the stretches of a text between its special tokens.
struct PlainEncoder<'a> {
    tokenizer: &'a Tokenizer,
    byte_pair: BytePairEncoder,
    sentence_piece: SentencePieceEncoder,
    /// Nothing, or a special token, stands before the stretch.
    follows_special: bool,
}

impl<'a> PlainEncoder<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        Self {
            tokenizer,
            byte_pair: BytePairEncoder::default(),
            sentence_piece: SentencePieceEncoder::default(),
            follows_special: true,
        }
    }

    fn encode(&mut self, text: Option<&str>, tokens: &mut Vec<u32>) -> Result<(), TextError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        let vocabulary = &self.tokenizer.vocabulary;
        match &self.tokenizer.algorithm {
            Algorithm::BytePair {
                merges,
                pre_tokenizer,
            } => pre_tokenizer.for_each_piece(text, &mut |piece| {
                if pre_tokenizer.whole_pieces()
                    && let Some(token) = vocabulary.find(piece.as_bytes())
                {
                    tokens.push(token);
                    return Ok(());
                }
                self.byte_pair.encode(merges, piece.as_bytes(), tokens)
            })?,
            Algorithm::SentencePiece {
                pieces,
                space_prefix,
            } => self.sentence_piece.encode(
                (vocabulary, pieces),
                *space_prefix && self.follows_special,
                text,
                tokens,
            )?,
        }
        self.follows_special = false;
        Ok(())
    }
}

/// Feeds every token with its kind to `push`.
fn read_vocabulary(
    metadata: &Metadata<'_>,
    push: &mut dyn FnMut(&str, TokenKind, &mut VocabularyBuilder) -> Result<(), TextError>,
) -> Result<Vocabulary, TextError> {
    let tokens = metadata.strings(TOKENS)?;
    let count = tokens.len();
    let types = metadata.i32s(TOKEN_TYPES).optional()?;
    let found = types.as_ref().map_or(count, ExactSizeIterator::len);
    if found != count {
        return Err(TextError::LengthMismatch {
            key: TOKEN_TYPES,
            found,
            tokens: count,
        });
    }
    let mut builder = VocabularyBuilder::with_capacity(count);
    let mut types = types.into_iter().flatten();
    for token in tokens {
        let kind = match types.next().map(TokenKind::from_number) {
            None | Some(TokenKind::Normal) if is_known_end(token) => TokenKind::Control,
            kind => kind.unwrap_or(TokenKind::Normal),
        };
        push(token, kind, &mut builder)?;
    }
    builder.build()
}

/// Merges as tokens: left, right, result.
fn read_merges(
    metadata: &Metadata<'_>,
    alphabet: &ByteAlphabet,
    vocabulary: &Vocabulary,
) -> Result<Vec<[u32; 3]>, TextError> {
    let lines = metadata.strings(MERGES)?;
    let mut merges = Vec::with_capacity(lines.len());
    let mut left = Vec::new();
    let mut right = Vec::new();
    for (merge, line) in lines.enumerate() {
        let bad = || TextError::BadMerge { merge };
        let (first, second) = line.split_once(' ').ok_or_else(bad)?;
        if !alphabet.decode(first, &mut left) || !alphabet.decode(second, &mut right) {
            return Err(bad());
        }
        let left_token = vocabulary.find(&left).ok_or_else(bad)?;
        let right_token = vocabulary.find(&right).ok_or_else(bad)?;
        left.extend_from_slice(&right);
        let merged = vocabulary.find(&left).ok_or_else(bad)?;
        merges.push([left_token, right_token, merged]);
    }
    Ok(merges)
}

/// The byte that a token named like `<0x0A>` stands for.
fn byte_of(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}

/// A token id from the metadata.
pub(super) fn token_id(
    metadata: &Metadata<'_>,
    key: &'static str,
    tokens: usize,
) -> Result<Option<u32>, TextError> {
    let Some(found) = metadata.u64(key).optional()? else {
        return Ok(None);
    };
    let id = u32::try_from(found)
        .ok()
        .filter(|&id| (id as usize) < tokens);
    let out_of_range = TextError::TokenOutOfRange { key, found, tokens };
    id.ok_or(out_of_range).map(Some)
}

#[cfg(test)]
pub(crate) mod tests;
