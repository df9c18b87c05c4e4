//! NEON: every vector is four 128-bit registers of 4 lanes each. Codes of 8 bits are made
//! signed, and the others are small enough to be signed as they are.
//!
//! With the extension `dotprod`, `sdot` adds four i8 x i8 products to each i32 lane. Without
//! it, products are summed in i16: with codes of 4, 5, 6 and 8 bits and activations of at
//! most 127 a product stays below 1906, 3938, 8002 and 16257, so 17, 8, 4 and 2 of them fit
//! before they are widened to i32.

#![expect(
    unsafe_code,
    reason = "intrinsics; each call is covered by the token's proof"
)]

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::{Kernel, LANES, Simd};
use crate::activations::Operand;

/// Proof that the CPU has NEON and, where `DOT`, the extension `dotprod`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon<const DOT: bool>(());

impl<const DOT: bool> Neon<DOT> {
    pub(crate) fn new() -> Option<Self> {
        let present = is_aarch64_feature_detected!("neon")
            && (!DOT || is_aarch64_feature_detected!("dotprod"));
        present.then_some(Self(()))
    }
}

impl From<Neon<true>> for Neon<false> {
    /// A CPU with `dotprod` has all that is needed without.
    fn from(_more: Neon<true>) -> Self {
        Self(())
    }
}

/// Enters code compiled for this tier without `dotprod`.
pub(crate) fn launch<K: Kernel>(simd: Neon<false>, kernel: K) -> K::Output {
    #[target_feature(enable = "neon")]
    fn entry<K: Kernel>(simd: Neon<false>, kernel: K) -> K::Output {
        kernel.run(simd)
    }
    // SAFETY: `simd` exists, so the CPU has NEON.
    unsafe { entry(simd, kernel) }
}

/// Enters code compiled for this tier with `dotprod`.
pub(crate) fn launch_dot<K: Kernel>(simd: Neon<true>, kernel: K) -> K::Output {
    #[target_feature(enable = "neon,dotprod")]
    fn entry<K: Kernel>(simd: Neon<true>, kernel: K) -> K::Output {
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

/// Applies an intrinsic to all four registers. Not a closure: that would be compiled without
/// the tier's features.
macro_rules! four {
    ($op:ident $(::<$immediate:tt>)?, $a:expr) => {{
        let a = $a;
        [
            pure!($op$(::<$immediate>)?(a[0])),
            pure!($op$(::<$immediate>)?(a[1])),
            pure!($op$(::<$immediate>)?(a[2])),
            pure!($op$(::<$immediate>)?(a[3])),
        ]
    }};
    ($op:ident, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        [
            pure!($op(a[0], b[0])),
            pure!($op(a[1], b[1])),
            pure!($op(a[2], b[2])),
            pure!($op(a[3], b[3])),
        ]
    }};
    ($op:ident, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, c) = ($a, $b, $c);
        [
            pure!($op(a[0], b[0], c[0])),
            pure!($op(a[1], b[1], c[1])),
            pure!($op(a[2], b[2], c[2])),
            pure!($op(a[3], b[3], c[3])),
        ]
    }};
}

/// Loads all four quarters of an array.
macro_rules! load_four {
    ($load:ident, $source:expr) => {{
        let [a, b, c, d] = quarters($source);
        [
            // SAFETY: `a` points at the first quarter; the load needs no alignment.
            unsafe { $load(a) },
            // SAFETY: `b` points at the second quarter; the load needs no alignment.
            unsafe { $load(b) },
            // SAFETY: `c` points at the third quarter; the load needs no alignment.
            unsafe { $load(c) },
            // SAFETY: `d` points at the last quarter; the load needs no alignment.
            unsafe { $load(d) },
        ]
    }};
}

/// Stores four registers to the quarters of an array.
macro_rules! store_four {
    ($store:ident, $value:expr, $target:expr) => {{
        let (value, [a, b, c, d]) = ($value, quarters_mut($target));
        // SAFETY: `a` points at the first quarter; the store needs no alignment.
        unsafe { $store(a, value[0]) };
        // SAFETY: `b` points at the second quarter; the store needs no alignment.
        unsafe { $store(b, value[1]) };
        // SAFETY: `c` points at the third quarter; the store needs no alignment.
        unsafe { $store(c, value[2]) };
        // SAFETY: `d` points at the last quarter; the store needs no alignment.
        unsafe { $store(d, value[3]) };
    }};
}

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type Codes = [uint8x16_t; 4];

#[inline(always)]
fn quarters<T, const N: usize>(source: &[T; N]) -> [*const T; 4] {
    let (low, high) = source.split_at(N / 2);
    let (a, b) = low.split_at(N / 4);
    let (c, d) = high.split_at(N / 4);
    [a.as_ptr(), b.as_ptr(), c.as_ptr(), d.as_ptr()]
}

#[inline(always)]
fn quarters_mut<T, const N: usize>(target: &mut [T; N]) -> [*mut T; 4] {
    let (low, high) = target.split_at_mut(N / 2);
    let (a, b) = low.split_at_mut(N / 4);
    let (c, d) = high.split_at_mut(N / 4);
    [
        a.as_mut_ptr(),
        b.as_mut_ptr(),
        c.as_mut_ptr(),
        d.as_mut_ptr(),
    ]
}

/// How many products of a code and an activation an i16 can sum.
const fn additions(bits: u32) -> usize {
    let largest = if bits == 8 { 128 } else { (1 << bits) - 1 };
    i16::MAX as usize / (127 * largest)
}

/// The parts of a dot product.
impl<const DOT: bool> Neon<DOT> {
    /// The dot product of 4 lanes with codes of magnitude `2^BITS - 1`, or 128 if `BITS` is 8.
    #[inline(always)]
    fn dot_quarter<const BITS: u32, const N: usize>(
        self,
        codes: &[int8x16_t; N],
        activations: &[[i8; 4]; N],
    ) -> int32x4_t {
        if DOT {
            self.dot_at_once(codes, activations)
        } else {
            self.dot_by_products::<BITS, N>(codes, activations)
        }
    }

    #[inline(always)]
    fn dot_at_once<const N: usize>(
        self,
        codes: &[int8x16_t; N],
        activations: &[[i8; 4]; N],
    ) -> int32x4_t {
        // Two chains hide the latency; integer sums may be split.
        let mut chains = [pure!(vdupq_n_s32(0)); 2];
        let (codes_by_four, last_codes) = codes.as_chunks::<4>();
        let (by_four, last) = activations.as_chunks::<4>();
        for (codes, activations) in codes_by_four.iter().zip(by_four) {
            // SAFETY: 16 bytes are readable; the load needs no alignment.
            let activations = unsafe { vld1q_s8(activations.as_ptr().cast()) };
            chains[0] = self.sdot::<0>(chains[0], codes[0], activations);
            chains[1] = self.sdot::<1>(chains[1], codes[1], activations);
            chains[0] = self.sdot::<2>(chains[0], codes[2], activations);
            chains[1] = self.sdot::<3>(chains[1], codes[3], activations);
        }
        for (codes, activations) in last_codes.iter().zip(last) {
            chains[0] = self.sdot::<0>(chains[0], *codes, self.broadcast(*activations));
        }
        pure!(vaddq_s32(chains[0], chains[1]))
    }

    /// Adds the dot products of the codes with group `GROUP` of four activations. The
    /// intrinsic is not stable yet.
    #[inline(always)]
    fn sdot<const GROUP: i32>(
        self,
        sum: int32x4_t,
        codes: int8x16_t,
        activations: int8x16_t,
    ) -> int32x4_t {
        let mut out = sum;
        // SAFETY: reached only where `DOT`, so the CPU has `sdot`; it touches registers only.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {codes:v}.16b, {activations:v}.4b[{group}]",
                sum = inout(vreg) out,
                codes = in(vreg) codes,
                activations = in(vreg) activations,
                group = const GROUP,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        out
    }

    #[inline(always)]
    fn dot_by_products<const BITS: u32, const N: usize>(
        self,
        codes: &[int8x16_t; N],
        activations: &[[i8; 4]; N],
    ) -> int32x4_t {
        let additions = const { additions(BITS) };
        let mut sums = [pure!(vdupq_n_s32(0)); 2];
        let blocks = codes.chunks(additions).zip(activations.chunks(additions));
        for (codes, activations) in blocks {
            let mut products = [pure!(vdupq_n_s16(0)); 2];
            for (codes, activations) in codes.iter().zip(activations) {
                let broadcast = self.broadcast(*activations);
                let low = pure!(vget_low_s8(*codes));
                let low_activations = pure!(vget_low_s8(broadcast));
                products[0] = pure!(vmlal_s8(products[0], low, low_activations));
                products[1] = pure!(vmlal_high_s8(products[1], *codes, broadcast));
            }
            sums[0] = pure!(vpadalq_s16(sums[0], products[0]));
            sums[1] = pure!(vpadalq_s16(sums[1], products[1]));
        }
        pure!(vpaddq_s32(sums[0], sums[1]))
    }

    #[inline(always)]
    fn broadcast(self, activations: [i8; 4]) -> int8x16_t {
        let word = i32::from_le_bytes(activations.map(i8::cast_unsigned));
        pure!(vreinterpretq_s8_s32(vdupq_n_s32(word)))
    }

    /// Quarter `quarter` of every vector, as signed bytes; `flipped` takes 128 off each.
    #[inline(always)]
    fn signed_quarter<const N: usize>(
        self,
        codes: &[Codes; N],
        quarter: usize,
        flipped: bool,
    ) -> [int8x16_t; N] {
        let flip = pure!(vdupq_n_u8(if flipped { 128 } else { 0 }));
        let mut quarters = [pure!(vdupq_n_s8(0)); N];
        for (target, codes) in quarters.iter_mut().zip(codes) {
            let code = pure!(veorq_u8(codes[quarter], flip));
            *target = pure!(vreinterpretq_s8_u8(code));
        }
        quarters
    }
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type F = F;
    type I = I;
    type Codes = Codes;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        [pure!(vdupq_n_f32(value)); 4]
    }
    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> F {
        load_four!(vld1q_f32, source)
    }
    #[inline(always)]
    fn store(self, value: F, target: &mut [f32; LANES]) {
        store_four!(vst1q_f32, value, target);
    }
    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> F {
        let halves = four!(vreinterpret_f16_u16, load_four!(vld1_u16, source));
        four!(vcvt_f32_f16, halves)
    }
    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> F {
        let wide = four!(vshll_n_u16::<16>, load_four!(vld1_u16, source));
        four!(vreinterpretq_f32_u32, wide)
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        four!(vaddq_f32, a, b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        four!(vsubq_f32, a, b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        four!(vmulq_f32, a, b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        four!(vdivq_f32, a, b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        four!(vfmaq_f32, c, a, b)
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        // Not `vmaxq_f32`, which gives NaN where either is NaN and orders the zeros.
        self.select_greater(a, b, a, b)
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        self.select_greater(b, a, a, b)
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        four!(vabsq_f32, a)
    }
    #[inline(always)]
    fn select_greater(self, a: F, b: F, x: F, y: F) -> F {
        four!(vbslq_f32, four!(vcgtq_f32, a, b), x, y)
    }
    #[inline(always)]
    fn round_to_int(self, a: F) -> I {
        four!(vcvtnq_s32_f32, a)
    }
    #[inline(always)]
    fn int_to_float(self, a: I) -> F {
        four!(vcvtq_f32_s32, a)
    }
    #[inline(always)]
    fn pow2(self, a: I) -> F {
        let biased = self.add_int(a, self.splat_int(127));
        let shifted = four!(vshlq_n_s32::<23>, biased);
        four!(vreinterpretq_f32_s32, shifted)
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> I {
        [pure!(vdupq_n_s32(value)); 4]
    }
    #[inline(always)]
    fn store_int(self, value: I, target: &mut [i32; LANES]) {
        store_four!(vst1q_s32, value, target);
    }
    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        four!(vaddq_s32, a, b)
    }
    #[inline(always)]
    fn load_bytes(self, source: &[u8; LANES]) -> I {
        // SAFETY: 16 bytes are readable; the load needs no alignment.
        let bytes = unsafe { vld1q_u8(source.as_ptr()) };
        let low = pure!(vmovl_u8(vget_low_u8(bytes)));
        let high = pure!(vmovl_high_u8(bytes));
        let wide = [
            pure!(vmovl_u16(vget_low_u16(low))),
            pure!(vmovl_high_u16(low)),
            pure!(vmovl_u16(vget_low_u16(high))),
            pure!(vmovl_high_u16(high)),
        ];
        four!(vreinterpretq_s32_u32, wide)
    }
    #[inline(always)]
    fn load_signed_bytes(self, source: &[i8; LANES]) -> I {
        // SAFETY: 16 bytes are readable; the load needs no alignment.
        let bytes = unsafe { vld1q_s8(source.as_ptr()) };
        let low = pure!(vmovl_s8(vget_low_s8(bytes)));
        let high = pure!(vmovl_high_s8(bytes));
        [
            pure!(vmovl_s16(vget_low_s16(low))),
            pure!(vmovl_high_s16(low)),
            pure!(vmovl_s16(vget_low_s16(high))),
            pure!(vmovl_high_s16(high)),
        ]
    }

    #[inline(always)]
    fn load_codes(self, source: &[u8; 64]) -> Codes {
        load_four!(vld1q_u8, source)
    }
    #[inline(always)]
    fn store_codes(self, value: Codes, target: &mut [u8; 64]) {
        store_four!(vst1q_u8, value, target);
    }
    #[inline(always)]
    fn shift_right_and<const SHIFT: i32>(self, a: Codes, mask: u8) -> Codes {
        let mask = [pure!(vdupq_n_u8(mask)); 4];
        if SHIFT == 0 {
            return four!(vandq_u8, a, mask);
        }
        // To the left by less than nothing: an immediate must not be zero, even where it is
        // never used.
        let count = [pure!(vdupq_n_s8(-(SHIFT as i8))); 4];
        four!(vandq_u8, four!(vshlq_u8, a, count), mask)
    }
    #[inline(always)]
    fn shift_left_and<const SHIFT: i32>(self, a: Codes, mask: u8) -> Codes {
        let mask = [pure!(vdupq_n_u8(mask)); 4];
        four!(vandq_u8, four!(vshlq_n_u8::<SHIFT>, a), mask)
    }
    #[inline(always)]
    fn or_codes(self, a: Codes, b: Codes) -> Codes {
        four!(vorrq_u8, a, b)
    }
    const ROWS: usize = 4;
    #[inline(always)]
    fn dot<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[Codes; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [I; R] {
        let mut sums = [self.splat_int(0); R];
        // Two quarters of the codes stay in registers while all rows pass.
        for first in [0, 2] {
            let low = self.signed_quarter(codes, first, BITS == 8);
            let high = self.signed_quarter(codes, first + 1, BITS == 8);
            for (row, sum) in rows.iter().zip(&mut sums) {
                sum[first] = self.dot_quarter::<BITS, N>(&low, row.codes);
                sum[first + 1] = self.dot_quarter::<BITS, N>(&high, row.codes);
            }
        }
        if centred && BITS < 8 {
            for (row, sum) in rows.iter().zip(&mut sums) {
                let centre = self.splat_int(-row.sums.total << (BITS - 1));
                *sum = self.add_int(*sum, centre);
            }
        }
        sums
    }
    #[inline(always)]
    fn prefetch<T>(self, source: &[T], offset: usize) {
        let line = source.as_ptr().cast::<u8>().wrapping_add(offset);
        // SAFETY: a prefetch reads nothing, and of an address that is not mapped it is a no-op.
        unsafe {
            asm!(
                "prfm pldl1keep, [{line}]",
                line = in(reg) line,
                options(readonly, nostack, preserves_flags),
            );
        }
    }
}
