//! What can be wrong with a tokenizer's metadata, or with a text for it.

use relight_gguf::GgufError;

/// Failures of loading a tokenizer and of using it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error(transparent)]
    Metadata(#[from] GgufError),
    #[error("tokenizer model `{found}` is not supported; known are `gpt2` and `llama`")]
    UnknownModel { found: String },
    #[error("pre-tokenizer `{found}` is not supported; known are: {known}")]
    UnknownPreTokenizer { found: String, known: String },
    #[error("`{key}` has {found} entries, but there are {tokens} tokens")]
    LengthMismatch {
        key: &'static str,
        found: usize,
        tokens: usize,
    },
    #[error("the vocabulary of {tokens} tokens in {bytes} bytes is too large to index")]
    VocabularyTooLarge { tokens: usize, bytes: usize },
    #[error("the vocabulary is empty")]
    VocabularyEmpty,
    #[error("token {token} has a score that is not finite")]
    ScoreNotFinite { token: u32 },
    #[error("merge {merge} is not two tokens that make a token")]
    BadMerge { merge: usize },
    #[error("`{key}` is {found}, outside the vocabulary of {tokens} tokens")]
    TokenOutOfRange {
        key: &'static str,
        found: u64,
        tokens: usize,
    },
    #[error("the file asks for a token at the start or end of every text but does not name it")]
    NoBoundaryToken,
    #[error("the character table lacks {pattern}")]
    UnicodeTable { pattern: &'static str },
    #[error("no token of the vocabulary stands for byte {byte:#04x} of the text")]
    NoTokenForByte { byte: u8 },
    #[error("text of {bytes} bytes is too long to tokenize")]
    TextTooLong { bytes: usize },
}
