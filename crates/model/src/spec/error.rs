//! Why a file's model cannot be computed.

use std::fmt;

use relight_gguf::{GgmlType, GgufError};

/// The value of a key, for messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Number(f64),
    Text(String),
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(formatter, "{number}"),
            Self::Text(text) => write!(formatter, "{text:?}"),
        }
    }
}

impl From<usize> for Found {
    fn from(count: usize) -> Self {
        Self::Number(count as f64)
    }
}

impl From<f32> for Found {
    fn from(number: f32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for Found {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Dimensions are in ggml's order: the length of a row first.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArchError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("architecture {found:?} is not supported; {} are", supported.join(", "))]
    UnknownArchitecture {
        found: String,
        supported: Vec<&'static str>,
    },
    #[error("metadata key {key:?} is {found}; supported is {expected}")]
    UnsupportedValue {
        key: String,
        found: Found,
        expected: &'static str,
    },
    #[error(
        "metadata key {key:?} belongs to the architecture and is not understood; \
         ignoring it could change the model's answers"
    )]
    UnknownKey { key: String },
    #[error("tensor {tensor:?} of dimensions {expected:?} is missing")]
    MissingTensor { tensor: String, expected: Vec<u64> },
    #[error("tensor {tensor:?} has dimensions {found:?}; expected are {expected:?}")]
    WrongShape {
        tensor: String,
        expected: Vec<u64>,
        found: Vec<u64>,
    },
    #[error("tensor {tensor:?} has the type {found}, which we cannot compute with yet")]
    UnsupportedTensorType { tensor: String, found: GgmlType },
    #[error(
        "tensor {tensor:?} of dimensions {found:?} has no place in the architecture; \
         ignoring it could change the model's answers"
    )]
    UnknownTensor { tensor: String, found: Vec<u64> },
    #[error("the vocabulary has {found} tokens, but {tensor:?} only {rows} rows")]
    VocabularyTooLarge {
        tensor: String,
        rows: usize,
        found: usize,
    },
}
