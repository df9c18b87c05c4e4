//! AVX-512 with VNNI: every vector is one 512-bit register, and `vpdpbusd` adds four u8 x i8
//! products to each i32 lane. With the feature `modelled-tiers` the instructions are modelled
//! in plain Rust instead, so that this code is tested on processors without them.

#![expect(
    unsafe_code,
    reason = "intrinsics; each call is covered by the token's proof"
)]

#[cfg(not(feature = "modelled-tiers"))]
use std::arch::x86_64::*;

#[cfg(feature = "modelled-tiers")]
use super::avx512_model::*;
use super::{Kernel, LANES, Simd};
use crate::activations::Operand;

/// Wraps intrinsics that are pure functions of registers.
macro_rules! pure {
    ($call:expr) => {
        // SAFETY: `self` exists, so the CPU has the instruction; it touches registers only.
        unsafe { $call }
    };
}

/// Proof that the CPU has AVX-512 F, BW, DQ, VL and VNNI, beside AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    #[cfg(feature = "modelled-tiers")]
    pub(crate) fn new() -> Option<Self> {
        super::Avx2::<false>::new().map(|_proof| Self(()))
    }

    #[cfg(not(feature = "modelled-tiers"))]
    pub(crate) fn new() -> Option<Self> {
        let present = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        present.then_some(Self(()))
    }

    #[inline(always)]
    fn broadcast(self, activations: [i8; 4]) -> __m512i {
        let word = i32::from_le_bytes(activations.map(i8::cast_unsigned));
        pure!(_mm512_set1_epi32(word))
    }
}

/// Enters code compiled for this tier.
pub(crate) fn launch<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
    #[cfg_attr(
        not(feature = "modelled-tiers"),
        target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
    )]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn entry<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
        kernel.run(simd)
    }
    // SAFETY: `simd` exists, so the CPU has these features.
    unsafe { entry(simd, kernel) }
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type Codes = __m512i;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        pure!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> __m512 {
        // SAFETY: 16 floats are readable; the load needs no alignment.
        unsafe { _mm512_loadu_ps(source.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, value: __m512, target: &mut [f32; LANES]) {
        // SAFETY: 16 floats are writable; the store needs no alignment.
        unsafe { _mm512_storeu_ps(target.as_mut_ptr(), value) };
    }
    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> __m512 {
        // SAFETY: 32 bytes are readable; the load needs no alignment.
        let bits = unsafe { _mm256_loadu_si256(source.as_ptr().cast()) };
        pure!(_mm512_cvtph_ps(bits))
    }
    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> __m512 {
        // SAFETY: 32 bytes are readable; the load needs no alignment.
        let bits = unsafe { _mm256_loadu_si256(source.as_ptr().cast()) };
        let wide = pure!(_mm512_cvtepu16_epi32(bits));
        let shifted = pure!(_mm512_slli_epi32::<16>(wide));
        pure!(_mm512_castsi512_ps(shifted))
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        pure!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        pure!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        pure!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        pure!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        pure!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        pure!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        pure!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        pure!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn select_greater(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        let mask = pure!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b));
        pure!(_mm512_mask_blend_ps(mask, y, x))
    }
    #[inline(always)]
    fn round_to_int(self, a: __m512) -> __m512i {
        pure!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn int_to_float(self, a: __m512i) -> __m512 {
        pure!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn pow2(self, a: __m512i) -> __m512 {
        let biased = self.add_int(a, self.splat_int(127));
        let shifted = pure!(_mm512_slli_epi32::<23>(biased));
        pure!(_mm512_castsi512_ps(shifted))
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> __m512i {
        pure!(_mm512_set1_epi32(value))
    }
    #[inline(always)]
    fn store_int(self, value: __m512i, target: &mut [i32; LANES]) {
        // SAFETY: 64 bytes are writable; the store needs no alignment.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), value) };
    }
    #[inline(always)]
    fn add_int(self, a: __m512i, b: __m512i) -> __m512i {
        pure!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn load_bytes(self, source: &[u8; LANES]) -> __m512i {
        // SAFETY: 16 bytes are readable; the load needs no alignment.
        let bytes = unsafe { _mm_loadu_si128(source.as_ptr().cast()) };
        pure!(_mm512_cvtepu8_epi32(bytes))
    }
    #[inline(always)]
    fn load_signed_bytes(self, source: &[i8; LANES]) -> __m512i {
        // SAFETY: 16 bytes are readable; the load needs no alignment.
        let bytes = unsafe { _mm_loadu_si128(source.as_ptr().cast()) };
        pure!(_mm512_cvtepi8_epi32(bytes))
    }

    #[inline(always)]
    fn load_codes(self, source: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes are readable; the load needs no alignment.
        unsafe { _mm512_loadu_si512(source.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store_codes(self, value: __m512i, target: &mut [u8; 64]) {
        // SAFETY: 64 bytes are writable; the store needs no alignment.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), value) };
    }
    #[inline(always)]
    fn shift_right_and<const SHIFT: i32>(self, a: __m512i, mask: u8) -> __m512i {
        // There is no byte shift: bits of the upper neighbour come in, and the mask drops them.
        let count = pure!(_mm_cvtsi32_si128(SHIFT));
        let shifted = pure!(_mm512_srl_epi16(a, count));
        let mask = pure!(_mm512_set1_epi8(mask.cast_signed()));
        pure!(_mm512_and_si512(shifted, mask))
    }
    #[inline(always)]
    fn shift_left_and<const SHIFT: i32>(self, a: __m512i, mask: u8) -> __m512i {
        let count = pure!(_mm_cvtsi32_si128(SHIFT));
        let shifted = pure!(_mm512_sll_epi16(a, count));
        let mask = pure!(_mm512_set1_epi8(mask.cast_signed()));
        pure!(_mm512_and_si512(shifted, mask))
    }
    #[inline(always)]
    fn or_codes(self, a: __m512i, b: __m512i) -> __m512i {
        pure!(_mm512_or_si512(a, b))
    }
    const ROWS: usize = 8;
    #[inline(always)]
    fn dot<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[__m512i; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [__m512i; R] {
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
                *chain = pure!(_mm512_dpbusd_epi32(*chain, *codes, broadcast));
            }
        }
        if R < 4 {
            for (even, odd) in even.iter_mut().zip(odd) {
                *even = self.add_int(*even, odd);
            }
        }
        even
    }
    #[inline(always)]
    fn prefetch<T>(self, source: &[T], offset: usize) {
        let line = source.as_ptr().cast::<i8>().wrapping_add(offset);
        // SAFETY: a prefetch reads nothing, and of an address that is not mapped it is a no-op.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
}
