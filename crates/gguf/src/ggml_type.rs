//! Element types of tensors, with the numbers and block layouts of `ggml.h`.

/// How a tensor's elements are stored. Rows are sequences of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(non_camel_case_types, reason = "ggml's own names")]
pub enum GgmlType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
}

impl GgmlType {
    /// Every known type, in ascending order of its number.
    pub const ALL: [Self; 34] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q8_1,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::Q8_K,
        Self::IQ2_XXS,
        Self::IQ2_XS,
        Self::IQ3_XXS,
        Self::IQ1_S,
        Self::IQ4_NL,
        Self::IQ3_S,
        Self::IQ2_S,
        Self::IQ4_XS,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F64,
        Self::IQ1_M,
        Self::BF16,
        Self::TQ1_0,
        Self::TQ2_0,
        Self::MXFP4,
        Self::NVFP4,
        Self::Q1_0,
    ];

    /// The type that files call `number`; `None` for numbers that were withdrawn or are
    /// newer than this table.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|candidate| candidate.number() == number)
    }

    /// The number that stands for this type in files.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// ggml's name, as in `Q4_K`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.layout().0
    }

    /// Elements of one block.
    #[must_use]
    pub fn block_elements(self) -> usize {
        self.layout().1
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.layout().2
    }

    /// Bytes of `elements` in a row; `None` if that is no whole number of blocks or
    /// overflows.
    #[must_use]
    pub fn row_bytes(self, elements: u64) -> Option<u64> {
        let block_elements = self.block_elements() as u64;
        if elements.checked_rem(block_elements)? != 0 {
            return None;
        }
        elements
            .checked_div(block_elements)?
            .checked_mul(self.block_bytes() as u64)
    }

    /// Name, elements and bytes of one block.
    fn layout(self) -> (&'static str, usize, usize) {
        match self {
            Self::F32 => ("F32", 1, 4),
            Self::F16 => ("F16", 1, 2),
            Self::Q4_0 => ("Q4_0", 32, 18),
            Self::Q4_1 => ("Q4_1", 32, 20),
            Self::Q5_0 => ("Q5_0", 32, 22),
            Self::Q5_1 => ("Q5_1", 32, 24),
            Self::Q8_0 => ("Q8_0", 32, 34),
            Self::Q8_1 => ("Q8_1", 32, 36),
            Self::Q2_K => ("Q2_K", 256, 84),
            Self::Q3_K => ("Q3_K", 256, 110),
            Self::Q4_K => ("Q4_K", 256, 144),
            Self::Q5_K => ("Q5_K", 256, 176),
            Self::Q6_K => ("Q6_K", 256, 210),
            Self::Q8_K => ("Q8_K", 256, 292),
            Self::IQ2_XXS => ("IQ2_XXS", 256, 66),
            Self::IQ2_XS => ("IQ2_XS", 256, 74),
            Self::IQ3_XXS => ("IQ3_XXS", 256, 98),
            Self::IQ1_S => ("IQ1_S", 256, 50),
            Self::IQ4_NL => ("IQ4_NL", 32, 18),
            Self::IQ3_S => ("IQ3_S", 256, 110),
            Self::IQ2_S => ("IQ2_S", 256, 82),
            Self::IQ4_XS => ("IQ4_XS", 256, 136),
            Self::I8 => ("I8", 1, 1),
            Self::I16 => ("I16", 1, 2),
            Self::I32 => ("I32", 1, 4),
            Self::I64 => ("I64", 1, 8),
            Self::F64 => ("F64", 1, 8),
            Self::IQ1_M => ("IQ1_M", 256, 56),
            Self::BF16 => ("BF16", 1, 2),
            Self::TQ1_0 => ("TQ1_0", 256, 54),
            Self::TQ2_0 => ("TQ2_0", 256, 66),
            Self::MXFP4 => ("MXFP4", 32, 17),
            Self::NVFP4 => ("NVFP4", 64, 36),
            Self::Q1_0 => ("Q1_0", 128, 18),
        }
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}
