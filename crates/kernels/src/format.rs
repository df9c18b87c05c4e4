//! The weight formats of a GGUF file: their ggml numbers and the size of their blocks.
//!
//! A *block* is the smallest run of consecutive weights of one row that is stored as a
//! unit. The float formats have blocks of one element.

/// How the weights of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 32 signed bytes and one scale.
    Q8_0,
    /// 32 codes of 4 bits with offset 8 and one scale.
    Q4_0,
    /// 32 codes of 4 bits, scale and minimum.
    Q4_1,
    /// 32 codes of 5 bits with offset 16 and one scale.
    Q5_0,
    /// 32 codes of 5 bits, scale and minimum.
    Q5_1,
    /// 256 codes of 4 bits; a 6-bit scale and minimum per 32, two scales above them.
    Q4K,
    /// 256 codes of 5 bits; a 6-bit scale and minimum per 32, two scales above them.
    Q5K,
    /// 256 codes of 6 bits with offset 32; an 8-bit scale per 16, one scale above them.
    Q6K,
}

impl Format {
    /// Every format, in the order of the declaration.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The format with ggml's tensor type number `number`, if it is one we compute with.
    #[must_use]
    pub const fn from_ggml(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// ggml's tensor type number of this format.
    #[must_use]
    pub const fn to_ggml(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Bf16 => 30,
        }
    }

    /// Weights per block. The columns of a tensor are a multiple of it.
    #[must_use]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of one row of `cols` weights in the file, `usize::MAX` if they do not fit a
    /// `usize`.
    ///
    /// # Panics
    /// If `cols` is not a multiple of [`Self::block_elements`].
    #[must_use]
    pub const fn row_bytes(self, cols: usize) -> usize {
        assert!(
            cols.is_multiple_of(self.block_elements()),
            "a row holds whole blocks"
        );
        (cols / self.block_elements()).saturating_mul(self.block_bytes())
    }

    /// Whether the weights are codes with scales, which are multiplied with quantized
    /// activations; the others are floats, multiplied with the activations as they are.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        self.block_elements() > 1
    }
}

#[cfg(test)]
mod tests;
