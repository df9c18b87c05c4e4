//! GGUF model files (versions 2 and 3, little-endian): untrusted bytes in, a validated
//! table of metadata and tensors out. The format is described in ggml's `docs/gguf.md`.
//!
//! ```text
//!   magic "GGUF" | version u32 | tensor count u64 | metadata count u64
//!   metadata:  key string | value type u32 | value             (repeated)
//!   tensors:   name string | rank u32 | dims u64.. | type u32 | offset u64   (repeated)
//!   padding to the alignment
//!   tensor data: each tensor at its offset from here, offsets are aligned
//! ```
//!
//! No count, length or offset is believed before it has been compared with its limit and
//! with the bytes that are left, and nothing is allocated in proportion to a number that
//! only the file claims. Large arrays stay in the file's bytes as validated views.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod error;
mod file;
mod ggml_type;
mod header;
pub mod limits;
mod metadata;
mod reader;
mod tensor;
mod value;
pub mod writer;

pub use error::{Counted, GgufError, Measured};
pub use file::Gguf;
pub use ggml_type::GgmlType;
pub use header::Header;
pub use metadata::{Metadata, Optional};
pub use tensor::TensorInfo;
pub use value::{Array, Elements, Kind, Value, ValueType};
pub use writer::Writer;
