//! Which instruction set the kernels use: chosen once, when a model is loaded.

use crate::simd::Tier;

/// Instruction set tier. All tiers give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust; the tier for a CPU that has none of the others.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// The same with AVX-VNNI.
    AvxVnni,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
    /// NEON, which every 64-bit ARM processor has.
    Neon,
    /// NEON and the extension `dotprod`.
    NeonDot,
}

impl Isa {
    /// Every tier, those of one architecture from the slowest to the fastest.
    pub const ALL: [Self; 6] = [
        Self::Scalar,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512,
        Self::Neon,
        Self::NeonDot,
    ];

    /// Lower-case name, as in the banner and in overrides.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::NeonDot => "neon-dot",
        }
    }

    /// Whether its instructions are modelled, which is slow.
    fn is_modelled(self) -> bool {
        cfg!(feature = "modelled-tiers") && matches!(self, Self::AvxVnni | Self::Avx512)
    }
}

/// The CPU lacks a tier that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedIsa(pub Isa);

impl std::fmt::Display for UnsupportedIsa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "this CPU has no {} (or not all of the extensions that go with it)",
            self.0.name()
        )
    }
}

impl std::error::Error for UnsupportedIsa {}

/// All operations, bound to one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    isa: Isa,
    pub(crate) tier: Tier,
}

impl Kernels {
    /// The fastest tier of this CPU; one that is only modelled is no candidate.
    #[must_use]
    pub fn detect() -> Self {
        let best = Isa::ALL
            .into_iter()
            .rev()
            .filter(|isa| !isa.is_modelled())
            .find_map(|isa| Self::with_isa(isa).ok());
        best.unwrap_or(Self {
            isa: Isa::Scalar,
            tier: Tier::Scalar(crate::simd::Scalar),
        })
    }

    /// A tier by choice.
    ///
    /// # Errors
    /// If the CPU lacks it.
    pub fn with_isa(isa: Isa) -> Result<Self, UnsupportedIsa> {
        let tier = Tier::new(isa).ok_or(UnsupportedIsa(isa))?;
        Ok(Self { isa, tier })
    }

    /// Every tier that this CPU has, the scalar one first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Isa::ALL
            .into_iter()
            .filter_map(|isa| Self::with_isa(isa).ok())
            .collect()
    }

    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
