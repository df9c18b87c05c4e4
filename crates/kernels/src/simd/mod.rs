//! The few vector operations that every kernel is written in, once per instruction set.
//!
//! A kernel is generic over [`Simd`] and works on 16 lanes whatever the register width: one
//! AVX-512 register, two AVX2 registers, four NEON registers, or an array of 16 floats. Every operation is a
//! single IEEE operation per lane (or exact integer arithmetic), so a kernel gives the same
//! bits on every tier; `tests.rs` holds each operation of each tier equal to the scalar one.
//!
//! A value of a tier's type is the proof that the CPU has it: it can only be had from
//! [`Tier`], which asks the CPU. [`Tier::launch`] is the one place where code compiled for a
//! tier is entered.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "x86_64", feature = "modelled-tiers"))]
mod avx512_model;
#[cfg(all(target_arch = "x86_64", feature = "modelled-tiers"))]
mod avx_vnni_model;
pub(crate) mod half;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::Isa;
use crate::activations::Operand;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use scalar::Scalar;

/// Lanes of every vector.
pub(crate) const LANES: usize = 16;

/// 16 lanes of f32 or i32, and vectors of 64 small unsigned codes: 4 consecutive codes of
/// each of 16 lanes, lane-major, the operand of a dot product with 4 activations.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    type F: Copy;
    type I: Copy;
    type Codes: Copy;

    fn splat(self, value: f32) -> Self::F;
    fn load(self, source: &[f32; LANES]) -> Self::F;
    fn store(self, value: Self::F, target: &mut [f32; LANES]);
    /// Widens IEEE half floats, exactly.
    fn load_f16(self, source: &[u16; LANES]) -> Self::F;
    /// Widens bfloat16, exactly.
    fn load_bf16(self, source: &[u16; LANES]) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: `b` where either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Clears the sign.
    fn abs(self, a: Self::F) -> Self::F;
    /// Sum of the lanes in the one order that every reduction uses: halves are added onto each
    /// other, 8 + 8, 4 + 4, 2 + 2, 1 + 1.
    #[inline(always)]
    fn fold_sum(self, a: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(a, &mut lanes);
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    }
    /// The greatest lane, of lanes that are no NaN; a zero of either sign.
    #[inline(always)]
    fn fold_max(self, a: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(a, &mut lanes);
        lanes
            .into_iter()
            .fold(lanes[0], |max, lane| if lane > max { lane } else { max })
    }
    /// `if a > b { x } else { y }`.
    fn select_greater(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// Nearest integer, ties to even; the value must fit an i32.
    fn round_to_int(self, a: Self::F) -> Self::I;
    fn int_to_float(self, a: Self::I) -> Self::F;
    /// `2^a` for `-126 <= a <= 127`.
    fn pow2(self, a: Self::I) -> Self::F;

    fn splat_int(self, value: i32) -> Self::I;
    fn store_int(self, value: Self::I, target: &mut [i32; LANES]);
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// Widens 16 unsigned bytes.
    fn load_bytes(self, source: &[u8; LANES]) -> Self::I;
    /// Widens 16 signed bytes.
    fn load_signed_bytes(self, source: &[i8; LANES]) -> Self::I;

    fn load_codes(self, source: &[u8; 64]) -> Self::Codes;
    fn store_codes(self, value: Self::Codes, target: &mut [u8; 64]);
    /// Per byte `(a >> SHIFT) & mask`, where `mask` has no bit above `7 - SHIFT`.
    fn shift_right_and<const SHIFT: i32>(self, a: Self::Codes, mask: u8) -> Self::Codes;
    /// Per byte `(a << SHIFT) & mask`, where `mask` has no bit below `SHIFT`.
    fn shift_left_and<const SHIFT: i32>(self, a: Self::Codes, mask: u8) -> Self::Codes;
    fn or_codes(self, a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// Per byte 16 where bit `g` of `plane` is set, else 0, in vector `g`.
    #[inline(always)]
    fn sixteens(self, plane: Self::Codes) -> [Self::Codes; 8] {
        [
            self.shift_left_and::<4>(plane, 16),
            self.shift_left_and::<3>(plane, 16),
            self.shift_left_and::<2>(plane, 16),
            self.shift_left_and::<1>(plane, 16),
            self.shift_right_and::<0>(plane, 16),
            self.shift_right_and::<1>(plane, 16),
            self.shift_right_and::<2>(plane, 16),
            self.shift_right_and::<3>(plane, 16),
        ]
    }
    /// Rows of activations whose dot products with one vector of codes keep this tier busy and
    /// still fit its registers: 1, 4 or 8.
    const ROWS: usize;
    /// The same with codes of 8 bits.
    const ROWS_OF_BYTES: usize = Self::ROWS;
    /// For every row, per lane `sum((code - centre) * activation)`, exactly. Codes have `BITS`
    /// bits: 4, 5, 8 or, if `N` is at most 4, 6. The centre is half their range if `centred`,
    /// else 0; codes of 8 bits are always centred. Activations are in -127..=127.
    fn dot<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[Self::Codes; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [Self::I; R];
    /// Asks for the cache line `offset` bytes after the start of `source`, ahead of its use. It
    /// may lie beyond the end.
    fn prefetch<T>(self, source: &[T], offset: usize);
}

/// Code that runs on any tier. `run` must be `#[inline(always)]`, as must everything generic
/// that it calls: only then is it compiled with the tier's instructions.
pub(crate) trait Kernel {
    type Output;
    /// Whether it has dot products of integers. Tiers that differ in nothing else share the
    /// code of kernels without.
    const HAS_DOTS: bool = false;
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// The instruction set in use, with the proof that the CPU has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tier {
    Scalar(Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon<false>),
    #[cfg(target_arch = "aarch64")]
    NeonDot(Neon<true>),
}

impl Tier {
    /// `None` if this CPU lacks the instruction set.
    pub(crate) fn new(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Scalar => Some(Self::Scalar(Scalar)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::new().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => Avx2::new().map(Self::AvxVnni),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::new().map(Self::Avx512),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => Neon::new().map(Self::Neon),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => Neon::new().map(Self::NeonDot),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 => None,
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Neon | Isa::NeonDot => None,
        }
    }

    /// Runs `kernel` compiled for this tier.
    pub(crate) fn launch<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Scalar(simd) => kernel.run(simd),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => avx2::launch(simd, kernel),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(simd) if K::HAS_DOTS => avx2::launch_vnni(simd, kernel),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(simd) => avx2::launch(simd.into(), kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => avx512::launch(simd, kernel),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => neon::launch(simd, kernel),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(simd) if K::HAS_DOTS => neon::launch_dot(simd, kernel),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(simd) => neon::launch(simd.into(), kernel),
        }
    }
}

#[cfg(test)]
mod tests;
