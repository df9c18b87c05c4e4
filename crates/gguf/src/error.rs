//! Why bytes are not a GGUF file that we can use, or why a key cannot be read as asked.

use std::fmt;

use crate::value::{Kind, ValueType};

/// What a count in the file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    MetadataEntries,
    ArrayElements,
    Tensors,
    Dimensions,
}

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MetadataEntries => "metadata entries",
            Self::ArrayElements => "array elements",
            Self::Tensors => "tensors",
            Self::Dimensions => "dimensions",
        })
    }
}

/// What a length in the file measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    Key,
    StringValue,
    TensorName,
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Key => "metadata key",
            Self::StringValue => "string",
            Self::TensorName => "tensor name",
        })
    }
}

/// Every `offset` is the byte in the file where the offending thing begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GgufError {
    #[error(
        "file is cut short at byte {offset}: {needed} bytes are needed there, {available} are left"
    )]
    Truncated {
        offset: usize,
        needed: u64,
        available: usize,
    },
    #[error("not a GGUF file: byte 0 holds {found:02x?} instead of \"GGUF\"")]
    BadMagic { found: [u8; 4] },
    #[error("big-endian GGUF file (byte {offset}); only little-endian files are supported")]
    BigEndian { offset: usize },
    #[error("GGUF version {found} at byte {offset} is not supported; 2 and 3 are")]
    UnsupportedVersion { offset: usize, found: u32 },
    #[error("{found} {counted} at byte {offset}; the limit is {limit}")]
    TooMany {
        counted: Counted,
        offset: usize,
        found: u64,
        limit: u64,
    },
    #[error("{measured} of {found} bytes at byte {offset}; the limit is {limit}")]
    TooLong {
        measured: Measured,
        offset: usize,
        found: u64,
        limit: u64,
    },
    #[error("empty {measured} at byte {offset}")]
    Empty { measured: Measured, offset: usize },
    #[error("{measured} at byte {offset} is not UTF-8")]
    InvalidUtf8 { measured: Measured, offset: usize },
    #[error("unknown metadata value type {found} at byte {offset}; the last known is {limit}")]
    UnknownValueType {
        offset: usize,
        found: u32,
        limit: u32,
    },
    #[error("bool at byte {offset} is {found}; only 0 and 1 are bools")]
    InvalidBool { offset: usize, found: u8 },
    #[error("arrays at byte {offset} are nested deeper than {limit}")]
    NestedTooDeep { offset: usize, limit: u32 },
    #[error("metadata key {key:?} at byte {offset} appears twice")]
    DuplicateKey { offset: usize, key: String },
    #[error(
        "general.alignment at byte {offset} is {found}; \
         it must be a power of two from 8 to {limit}"
    )]
    BadAlignment {
        offset: usize,
        found: u32,
        limit: u32,
    },
    #[error("tensor {tensor:?} at byte {offset} appears twice")]
    DuplicateTensor { offset: usize, tensor: String },
    #[error("tensor {tensor:?} has no dimensions (byte {offset})")]
    NoDimensions { offset: usize, tensor: String },
    #[error("dimension {dimension} of tensor {tensor:?} is zero (byte {offset})")]
    ZeroDimension {
        offset: usize,
        tensor: String,
        dimension: u32,
    },
    #[error(
        "dimension {dimension} of tensor {tensor:?} is {found} (byte {offset}); \
         the limit is {limit}"
    )]
    OversizedDimension {
        offset: usize,
        tensor: String,
        dimension: u32,
        found: u64,
        limit: u64,
    },
    #[error("dimensions {dimensions:?} of tensor {tensor:?} overflow (byte {offset})")]
    DimensionsOverflow {
        offset: usize,
        tensor: String,
        dimensions: Vec<u64>,
    },
    #[error("tensor {tensor:?} has the unknown type {found} (byte {offset})")]
    UnknownTensorType {
        offset: usize,
        tensor: String,
        found: u32,
    },
    #[error(
        "rows of tensor {tensor:?} have {found} elements (byte {offset}); \
         its type {type_name} stores whole blocks of {block}"
    )]
    PartialBlock {
        offset: usize,
        tensor: String,
        type_name: &'static str,
        found: u64,
        block: usize,
    },
    #[error(
        "data of tensor {tensor:?} is at offset {found} (stated at byte {offset}), \
         which is not a multiple of the alignment {alignment}"
    )]
    MisalignedTensor {
        offset: usize,
        tensor: String,
        found: u64,
        alignment: u32,
    },
    #[error(
        "data of tensor {tensor:?} (stated at byte {offset}) is {bytes} bytes \
         from byte {start}; the file ends at byte {limit}"
    )]
    TensorOutOfFile {
        offset: usize,
        tensor: String,
        start: u64,
        bytes: u64,
        limit: usize,
    },
    #[error("data of the tensors {first:?} and {second:?} overlap at byte {offset}")]
    OverlappingTensors {
        offset: usize,
        first: String,
        second: String,
    },
    #[error("metadata key {key:?} is missing")]
    MissingKey { key: String },
    #[error("metadata key {key:?} (byte {offset}) is {found} where {expected} is expected")]
    WrongType {
        key: String,
        offset: usize,
        expected: Kind,
        found: Kind,
    },
    #[error("metadata key {key:?} (byte {offset}) holds {found}, which is no {expected}")]
    OutOfRange {
        key: String,
        offset: usize,
        expected: ValueType,
        found: i128,
    },
}
