//! Weights in the order in which the kernels read them.
//!
//! A matrix of `rows` x `cols` weights is cut into *strips* of 16 rows, the last one padded
//! with zero rows. A strip is one contiguous stream, `cols` ascending, so a product reads it
//! from front to back, and lane `i` of every vector belongs to row `i` of the strip. Repacking
//! is a permutation of the file's bits: a strip has exactly the bytes of its 16 rows.
//!
//! ```text
//! strip    := block of 16 rows, for each block of the format
//! block    := scales group*                        quantized formats
//!           | 16 elements                          float formats: one column
//! group    := [high plane] codes                   32 columns
//!
//! code vector g of a group, g in 0..8: byte 4 * row + i is the code of column 4 * g + i
//!
//! 8 bits     codes = vector 0 ... vector 7                      512 bytes
//! 4 bits     codes = 4 x 64 bytes, byte j of the v-th:          256 bytes
//!            byte j of vector 2v | byte j of vector 2v+1 << 4
//! 5 bits     high plane 64 bytes: bit g of byte j = fifth bit of byte j of vector g,
//!            then codes as for 4 bits
//! 6 bits     high plane 2 x 64 bytes: bits 2i, 2i+1 of byte j of the p-th = upper two bits
//!            of byte j of vector 4p+i, then codes as for 4 bits
//!
//! scales of  Q8_0 Q4_0 Q5_0   d:f16[16]
//!            Q4_1 Q5_1        d:f16[16] m:f16[16]
//!            Q4_K Q5_K        d:f16[16] dmin:f16[16] low:[8][16] high:[4][16]
//!                             low[b][row]  = lower 4 bits of scale b | of minimum b << 4
//!                             high[b/2][row], nibble b%2 = upper 2 bits of scale b
//!                                                        | of minimum b << 2
//!            Q6_K             d:f16[16] scale:i8[16][16]        [group of 16][row]
//! ```

pub(crate) mod decode;
mod repack;

pub use repack::{repack, repack_strip};

use crate::Format;

/// Rows per strip.
pub const STRIP_ROWS: usize = 16;

/// Columns per group: what is unpacked at once, and what shares one activation scale.
pub(crate) const GROUP_COLS: usize = 32;

/// Bytes of `cols` columns of one strip, `usize::MAX` if they do not fit a `usize`.
///
/// # Panics
/// If `cols` is not a multiple of the format's block.
#[must_use]
pub const fn strip_bytes(format: Format, cols: usize) -> usize {
    format.row_bytes(cols).saturating_mul(STRIP_ROWS)
}

/// Bytes of the tiles of a matrix, `usize::MAX` if they do not fit a `usize`.
///
/// # Panics
/// If `cols` is not a multiple of the format's block.
#[must_use]
pub const fn tile_bytes(format: Format, rows: usize, cols: usize) -> usize {
    strip_bytes(format, cols).saturating_mul(rows.div_ceil(STRIP_ROWS))
}

/// Why bytes are not the tiles of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileError {
    /// The columns are not a multiple of the format's block.
    PartialBlock { format: Format, cols: usize },
    /// The buffer does not have the size of the matrix.
    Size { expected: usize, found: usize },
}

impl std::fmt::Display for TileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PartialBlock { format, cols } => write!(
                f,
                "{cols} columns are not a multiple of the {} of a {format:?} block",
                format.block_elements()
            ),
            Self::Size { expected, found } => {
                write!(f, "tiles have {found} bytes, the matrix needs {expected}")
            }
        }
    }
}

impl std::error::Error for TileError {}

/// A matrix of weights, as a view of its tiles.
#[derive(Clone, Copy)]
pub struct Tiles<'a> {
    format: Format,
    rows: usize,
    cols: usize,
    bytes: &'a [u8],
}

impl<'a> Tiles<'a> {
    /// The matrix whose tiles [`repack`] wrote into `bytes`.
    ///
    /// # Errors
    /// If `cols` or the length of `bytes` does not fit the matrix.
    pub fn new(
        format: Format,
        rows: usize,
        cols: usize,
        bytes: &'a [u8],
    ) -> Result<Self, TileError> {
        if !cols.is_multiple_of(format.block_elements()) {
            return Err(TileError::PartialBlock { format, cols });
        }
        let expected = tile_bytes(format, rows, cols);
        if bytes.len() != expected {
            let found = bytes.len();
            return Err(TileError::Size { expected, found });
        }
        Ok(Self {
            format,
            rows,
            cols,
            bytes,
        })
    }

    /// How the weights are stored.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows: elements of an output.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: elements of an input.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn strip_bytes(&self) -> usize {
        strip_bytes(self.format, self.cols)
    }

    pub(crate) fn strips(&self) -> usize {
        self.rows.div_ceil(STRIP_ROWS)
    }
}

impl std::fmt::Debug for Tiles<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiles")
            .field("format", &self.format)
            .field("rows", &self.rows)
            .field("cols", &self.cols)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
