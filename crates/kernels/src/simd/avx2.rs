//! AVX2 with FMA and F16C: every vector is a pair of 256-bit registers, lanes 0..8 and 8..16.
//!
//! The two tiers differ in dot products alone. With AVX-VNNI, `vpdpbusd` adds four u8 x i8
//! products to each i32 lane. With the feature `modelled-tiers` that instruction is modelled in
//! plain Rust instead, so that this code is tested on processors without it.
//!
//! Without, they use `vpmaddubsw`, which adds pairs of u8 x i8 products into i16, and add these
//! with wrap-around: only the sum has to fit. Codes of 4 bits give sums of 8 pairs that fit as
//! they are, 15 * 127 * 2 * 8 = 30480. With `centre * (sum of the activations)` taken off, 8
//! pairs of 5 bits fit, 16 * 127 * 2 * 8 = 32512, and 4 pairs of 6 bits. Codes of 8 bits are
//! made signed and widened: `vpmaddwd` adds pairs of i16 products into i32.

#![expect(
    unsafe_code,
    reason = "intrinsics; each call is covered by the token's proof"
)]

use std::arch::x86_64::*;

#[cfg(feature = "modelled-tiers")]
use super::avx_vnni_model::_mm256_dpbusd_avx_epi32;
use super::{Kernel, LANES, Simd};
use crate::activations::Operand;

/// Proof that the CPU has AVX2, FMA and F16C, and AVX-VNNI if `VNNI`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    pub(crate) fn new() -> Option<Self> {
        let present = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || cfg!(feature = "modelled-tiers") || is_x86_feature_detected!("avxvnni"));
        present.then_some(Self(()))
    }
}

impl From<Avx2<true>> for Avx2<false> {
    /// A CPU with AVX-VNNI has all that is needed without.
    fn from(_more: Avx2<true>) -> Self {
        Self(())
    }
}

/// Enters code compiled for the tier without AVX-VNNI.
pub(crate) fn launch<K: Kernel>(simd: Avx2<false>, kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn entry<K: Kernel>(simd: Avx2<false>, kernel: K) -> K::Output {
        kernel.run(simd)
    }
    // SAFETY: `simd` exists, so the CPU has these features.
    unsafe { entry(simd, kernel) }
}

/// Enters code compiled for the tier with AVX-VNNI.
pub(crate) fn launch_vnni<K: Kernel>(simd: Avx2<true>, kernel: K) -> K::Output {
    #[cfg_attr(not(feature = "modelled-tiers"), target_feature(enable = "avxvnni"))]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn entry<K: Kernel>(simd: Avx2<true>, kernel: K) -> K::Output {
        kernel.run(simd)
    }
    // SAFETY: `simd` exists, so the CPU has these features.
    unsafe { entry(simd, kernel) }
}

/// Wraps intrinsics that are pure functions of registers.
macro_rules! pure {
    ($call:expr) => {
        // SAFETY: `self` exists, so the CPU has the instruction; it touches registers only.
        unsafe { $call }
    };
}

/// Applies an intrinsic to both halves. Not a closure: that would be compiled without AVX2.
macro_rules! both {
    ($op:ident $(::<$immediate:tt>)?, $a:expr) => {{
        let a = $a;
        [pure!($op$(::<$immediate>)?(a[0])), pure!($op$(::<$immediate>)?(a[1]))]
    }};
    ($op:ident, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        [pure!($op(a[0], b[0])), pure!($op(a[1], b[1]))]
    }};
    ($op:ident, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, c) = ($a, $b, $c);
        [pure!($op(a[0], b[0], c[0])), pure!($op(a[1], b[1], c[1]))]
    }};
}

/// Loads both halves of an array.
macro_rules! load_both {
    ($load:ident, $source:expr) => {{
        let [low, high] = halves($source);
        [
            // SAFETY: `low` points at the first half; the load needs no alignment.
            unsafe { $load(low.cast()) },
            // SAFETY: `high` points at the second half; the load needs no alignment.
            unsafe { $load(high.cast()) },
        ]
    }};
}

type F = [__m256; 2];
type I = [__m256i; 2];

#[inline(always)]
fn halves<T, const N: usize>(source: &[T; N]) -> [*const T; 2] {
    let (low, high) = source.split_at(N / 2);
    [low.as_ptr(), high.as_ptr()]
}

/// The same value, but the compiler no longer knows whence, so that it leaves sums of integers in
/// the order written. In the one it prefers, sums of four rows do not fit the registers.
#[inline]
#[target_feature(enable = "avx2")]
fn opaque(mut value: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!(
            "/* {0} */",
            inout(ymm_reg) value,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}

impl<const VNNI: bool> Avx2<VNNI> {
    /// [`Simd::dot`] with AVX-VNNI.
    #[inline(always)]
    fn dot_at_once<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[I; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [I; R] {
        // With few rows, a second chain hides the latency; integer sums may be split.
        let mut even = [self.splat_int(0); R];
        let mut odd = [self.splat_int(0); R];
        if centred {
            for (even, row) in even.iter_mut().zip(rows) {
                *even = self.splat_int(-row.sums.total << (BITS - 1));
            }
        }
        for (index, codes) in codes.iter().enumerate() {
            for ((even, odd), row) in even.iter_mut().zip(&mut odd).zip(rows) {
                let broadcast = self.broadcast(row.codes[index]);
                let second = R < 4 && index % 2 == 1;
                let chain = if second { odd } else { even };
                *chain = both!(_mm256_dpbusd_avx_epi32, *chain, *codes, [broadcast; 2]);
            }
        }
        if R < 4 {
            for (even, odd) in even.iter_mut().zip(odd) {
                *even = self.add_int(*even, odd);
            }
        }
        even
    }

    /// [`Simd::dot`] for codes below 8 bits, with sums in 16 bits.
    #[inline(always)]
    fn dot_narrow<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[I; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [I; R] {
        // Known when this is compiled; the branch is gone.
        assert!(
            (127 * 2 * N) << (BITS - 1) <= i16::MAX as usize,
            "head-room"
        );
        let mut pairs = [[pure!(_mm256_setzero_si256()); 2]; R];
        for (index, codes) in codes.iter().enumerate() {
            for (pairs, row) in pairs.iter_mut().zip(rows) {
                let broadcast = self.broadcast(row.codes[index]);
                let products = [
                    pure!(_mm256_maddubs_epi16(codes[0], broadcast)),
                    pure!(_mm256_maddubs_epi16(codes[1], broadcast)),
                ];
                *pairs = both!(_mm256_add_epi16, *pairs, products);
                if R >= 4 {
                    *pairs = both!(opaque, *pairs);
                }
            }
        }
        let ones = [pure!(_mm256_set1_epi16(1)); 2];
        for (pairs, row) in pairs.iter_mut().zip(rows) {
            if centred || BITS > 4 {
                let sums = self.broadcast_pairs(row.sums.pairs);
                let offset = pure!(_mm256_sll_epi16(sums, self.count(BITS - 1)));
                *pairs = both!(_mm256_sub_epi16, *pairs, [offset; 2]);
            }
            *pairs = both!(_mm256_madd_epi16, *pairs, ones);
            if !centred && BITS > 4 {
                let centre = self.splat_int(row.sums.total << (BITS - 1));
                *pairs = self.add_int(*pairs, centre);
            }
        }
        pairs
    }

    /// [`Simd::dot`] for codes of 8 bits.
    #[inline(always)]
    fn dot_bytes<const N: usize, const R: usize>(
        self,
        codes: &[I; N],
        rows: [Operand<'_, N>; R],
    ) -> [I; R] {
        let mut sums = [[pure!(_mm256_setzero_si256()); 2]; R];
        for half in 0..2 {
            for (index, codes) in codes.iter().enumerate() {
                let flip = pure!(_mm256_set1_epi8(i8::MIN));
                let signed = pure!(_mm256_xor_si256(codes[half], flip));
                let magnitudes = pure!(_mm256_abs_epi8(signed));
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let broadcast = self.broadcast(row.codes[index]);
                    let moved = pure!(_mm256_sign_epi8(broadcast, signed));
                    let pairs = pure!(_mm256_maddubs_epi16(magnitudes, moved));
                    let ones = pure!(_mm256_set1_epi16(1));
                    let fours = pure!(_mm256_madd_epi16(pairs, ones));
                    sums[half] = pure!(_mm256_add_epi32(sums[half], fours));
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn broadcast(self, activations: [i8; 4]) -> __m256i {
        let word = i32::from_le_bytes(activations.map(i8::cast_unsigned));
        pure!(_mm256_set1_epi32(word))
    }

    #[inline(always)]
    fn broadcast_pairs(self, [first, last]: [i16; 2]) -> __m256i {
        let word = i32::from(last) << 16 | i32::from(first.cast_unsigned());
        pure!(_mm256_set1_epi32(word))
    }

    /// The operand of a shift.
    #[inline(always)]
    fn count(self, bits: u32) -> __m128i {
        pure!(_mm_cvtsi32_si128(bits.cast_signed()))
    }
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F = F;
    type I = I;
    type Codes = I;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        [pure!(_mm256_set1_ps(value)); 2]
    }
    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> F {
        load_both!(_mm256_loadu_ps, source)
    }
    #[inline(always)]
    fn store(self, value: F, target: &mut [f32; LANES]) {
        let (low, high) = target.split_at_mut(LANES / 2);
        // SAFETY: `low` has 8 floats; the store needs no alignment.
        unsafe { _mm256_storeu_ps(low.as_mut_ptr(), value[0]) };
        // SAFETY: `high` has 8 floats; the store needs no alignment.
        unsafe { _mm256_storeu_ps(high.as_mut_ptr(), value[1]) };
    }
    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> F {
        both!(_mm256_cvtph_ps, load_both!(_mm_loadu_si128, source))
    }
    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> F {
        let wide = both!(_mm256_cvtepu16_epi32, load_both!(_mm_loadu_si128, source));
        let shifted = both!(_mm256_slli_epi32::<16>, wide);
        both!(_mm256_castsi256_ps, shifted)
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        both!(_mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        both!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        let sign = [pure!(_mm256_set1_ps(-0.0)); 2];
        both!(_mm256_andnot_ps, sign, a)
    }
    #[inline(always)]
    fn fold_sum(self, a: F) -> f32 {
        let eight = pure!(_mm256_add_ps(a[0], a[1]));
        let high = pure!(_mm256_extractf128_ps::<1>(eight));
        let four = pure!(_mm_add_ps(_mm256_castps256_ps128(eight), high));
        let two = pure!(_mm_add_ps(four, _mm_movehl_ps(four, four)));
        let one = pure!(_mm_add_ss(two, _mm_movehdup_ps(two)));
        pure!(_mm_cvtss_f32(one))
    }
    #[inline(always)]
    fn fold_max(self, a: F) -> f32 {
        let eight = pure!(_mm256_max_ps(a[0], a[1]));
        let high = pure!(_mm256_extractf128_ps::<1>(eight));
        let four = pure!(_mm_max_ps(_mm256_castps256_ps128(eight), high));
        let two = pure!(_mm_max_ps(four, _mm_movehl_ps(four, four)));
        let one = pure!(_mm_max_ss(two, _mm_movehdup_ps(two)));
        pure!(_mm_cvtss_f32(one))
    }
    #[inline(always)]
    fn select_greater(self, a: F, b: F, x: F, y: F) -> F {
        let mask = [
            pure!(_mm256_cmp_ps::<_CMP_GT_OQ>(a[0], b[0])),
            pure!(_mm256_cmp_ps::<_CMP_GT_OQ>(a[1], b[1])),
        ];
        both!(_mm256_blendv_ps, y, x, mask)
    }
    #[inline(always)]
    fn round_to_int(self, a: F) -> I {
        both!(_mm256_cvtps_epi32, a)
    }
    #[inline(always)]
    fn int_to_float(self, a: I) -> F {
        both!(_mm256_cvtepi32_ps, a)
    }
    #[inline(always)]
    fn pow2(self, a: I) -> F {
        let biased = self.add_int(a, self.splat_int(127));
        let shifted = both!(_mm256_slli_epi32::<23>, biased);
        both!(_mm256_castsi256_ps, shifted)
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> I {
        [pure!(_mm256_set1_epi32(value)); 2]
    }
    #[inline(always)]
    fn store_int(self, value: I, target: &mut [i32; LANES]) {
        let (low, high) = target.split_at_mut(LANES / 2);
        // SAFETY: `low` has 8 integers; the store needs no alignment.
        unsafe { _mm256_storeu_si256(low.as_mut_ptr().cast(), value[0]) };
        // SAFETY: `high` has 8 integers; the store needs no alignment.
        unsafe { _mm256_storeu_si256(high.as_mut_ptr().cast(), value[1]) };
    }
    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        both!(_mm256_add_epi32, a, b)
    }
    #[inline(always)]
    fn load_bytes(self, source: &[u8; LANES]) -> I {
        both!(_mm256_cvtepu8_epi32, load_both!(_mm_loadl_epi64, source))
    }
    #[inline(always)]
    fn load_signed_bytes(self, source: &[i8; LANES]) -> I {
        both!(_mm256_cvtepi8_epi32, load_both!(_mm_loadl_epi64, source))
    }

    #[inline(always)]
    fn load_codes(self, source: &[u8; 64]) -> I {
        load_both!(_mm256_loadu_si256, source)
    }
    #[inline(always)]
    fn store_codes(self, value: I, target: &mut [u8; 64]) {
        let (low, high) = target.split_at_mut(32);
        // SAFETY: `low` has 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(low.as_mut_ptr().cast(), value[0]) };
        // SAFETY: `high` has 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(high.as_mut_ptr().cast(), value[1]) };
    }
    #[inline(always)]
    fn shift_right_and<const SHIFT: i32>(self, a: I, mask: u8) -> I {
        // There is no byte shift: bits of the upper neighbour come in, and the mask drops them.
        let shifted = both!(_mm256_srli_epi16::<SHIFT>, a);
        let mask = [pure!(_mm256_set1_epi8(mask.cast_signed())); 2];
        both!(_mm256_and_si256, shifted, mask)
    }
    #[inline(always)]
    fn shift_left_and<const SHIFT: i32>(self, a: I, mask: u8) -> I {
        let shifted = both!(_mm256_slli_epi16::<SHIFT>, a);
        let mask = [pure!(_mm256_set1_epi8(mask.cast_signed())); 2];
        both!(_mm256_and_si256, shifted, mask)
    }
    #[inline(always)]
    fn or_codes(self, a: I, b: I) -> I {
        both!(_mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn sixteens(self, plane: I) -> [I; 8] {
        // One unit shifts, three take a minimum.
        let lower = both!(_mm256_slli_epi16::<4>, plane);
        let sixteen = [pure!(_mm256_set1_epi8(16)); 2];
        let mut vectors = [plane; 8];
        for (index, vector) in vectors.iter_mut().enumerate() {
            let bit = [pure!(_mm256_set1_epi8((16u8 << (index % 4)).cast_signed())); 2];
            let source = if index < 4 { lower } else { plane };
            let selected = both!(_mm256_and_si256, source, bit);
            *vector = both!(_mm256_min_epu8, selected, sixteen);
        }
        vectors
    }
    const ROWS: usize = 4;
    const ROWS_OF_BYTES: usize = if VNNI { 4 } else { 8 };
    #[inline(always)]
    fn dot<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[I; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [I; R] {
        if VNNI {
            return self.dot_at_once::<BITS, N, R>(codes, rows, centred);
        }
        if BITS == 8 {
            return self.dot_bytes(codes, rows);
        }
        self.dot_narrow::<BITS, N, R>(codes, rows, centred)
    }
    #[inline(always)]
    fn prefetch<T>(self, source: &[T], offset: usize) {
        let line = source.as_ptr().cast::<i8>().wrapping_add(offset);
        // SAFETY: a prefetch reads nothing, and of an address that is not mapped it is a no-op.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
}
