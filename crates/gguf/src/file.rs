//! A whole file: its table and the tensor data.

use std::fmt;
use std::ops::Deref;

use crate::error::GgufError;
use crate::header::Header;
use crate::tensor::TensorInfo;

/// A validated view of a file's bytes. The table is reached by dereferencing.
#[derive(Clone)]
pub struct Gguf<'a> {
    header: Header<'a>,
    bytes: &'a [u8],
}

impl<'a> Gguf<'a> {
    /// Checks everything but the values of tensor data, in time linear in the table.
    ///
    /// # Errors
    /// See [`GgufError`]; all but `MissingKey` can occur.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GgufError> {
        Ok(Self {
            header: Header::parse(bytes, bytes.len())?,
            bytes,
        })
    }

    /// The stored blocks of one of this file's tensors, row by row.
    #[must_use]
    pub fn data(&self, tensor: &TensorInfo<'_>) -> &'a [u8] {
        self.bytes.get(tensor.data.clone()).unwrap_or_default()
    }
}

impl<'a> Deref for Gguf<'a> {
    type Target = Header<'a>;

    fn deref(&self) -> &Self::Target {
        &self.header
    }
}

impl fmt::Debug for Gguf<'_> {
    /// Without the bytes, which are a whole model.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Gguf")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
