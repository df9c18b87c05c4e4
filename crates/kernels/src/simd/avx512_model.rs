//! The AVX-512 instructions that this crate uses, in plain Rust after the operation sections
//! of Intel's Software Developer's Manual: the tier's own code runs on them, bit for bit as
//! on a processor that has the instructions, wherever there is none. For tests.

#![expect(
    unsafe_code,
    reason = "loads and stores take pointers, as the intrinsics do"
)]
#![expect(
    non_camel_case_types,
    reason = "the names of the instructions' intrinsics"
)]

use std::array::from_fn;

pub(super) use std::arch::x86_64::{
    __m128i, __m256i, _CMP_GT_OQ, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_prefetch,
    _mm256_loadu_si256,
};
use std::arch::x86_64::{_mm_cvtsi128_si64, _mm_extract_epi64, _mm256_extract_epi64};

use super::half::f16_to_f32;

/// Sixteen floats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct __m512([f32; 16]);

/// Sixty-four bytes, as sixteen little-endian words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct __m512i([u32; 16]);

/// Instructions that are one function of the lanes of their operands.
macro_rules! lanewise {
    ($($name:ident($($operand:ident: $type:ty),*) -> $result:ident: $lane:expr;)*) => {$(
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn $name($($operand: $type),*) -> $result {
            $result(from_fn(|lane| {
                let ($($operand,)*) = ($($operand.0[lane],)*);
                $lane
            }))
        }
    )*};
}

lanewise! {
    _mm512_add_ps(a: __m512, b: __m512) -> __m512: a + b;
    _mm512_sub_ps(a: __m512, b: __m512) -> __m512: a - b;
    _mm512_mul_ps(a: __m512, b: __m512) -> __m512: a * b;
    _mm512_div_ps(a: __m512, b: __m512) -> __m512: a / b;
    _mm512_fmadd_ps(a: __m512, b: __m512, c: __m512) -> __m512: a.mul_add(b, c);
    // The second operand if either is not a number, or both are zero.
    _mm512_max_ps(a: __m512, b: __m512) -> __m512: if a > b { a } else { b };
    _mm512_min_ps(a: __m512, b: __m512) -> __m512: if a < b { a } else { b };
    _mm512_abs_ps(a: __m512) -> __m512: f32::from_bits(a.to_bits() & 0x7fff_ffff);
    _mm512_castsi512_ps(a: __m512i) -> __m512: f32::from_bits(a);
    _mm512_cvtepi32_ps(a: __m512i) -> __m512: a.cast_signed() as f32;
    _mm512_cvtps_epi32(a: __m512) -> __m512i: nearest_int(a).cast_unsigned();
    _mm512_add_epi32(a: __m512i, b: __m512i) -> __m512i: a.wrapping_add(b);
    _mm512_and_si512(a: __m512i, b: __m512i) -> __m512i: a & b;
    _mm512_or_si512(a: __m512i, b: __m512i) -> __m512i: a | b;
    _mm512_dpbusd_epi32(sum: __m512i, a: __m512i, b: __m512i) -> __m512i: dot_of_four(sum, a, b);
}

/// To the nearest, ties to even; what does not fit becomes the "integer indefinite" value.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
fn nearest_int(value: f32) -> i32 {
    let rounded = value.round_ties_even();
    if (-2_147_483_648.0..2_147_483_648.0).contains(&rounded) {
        rounded as i32
    } else {
        i32::MIN
    }
}

/// Adds the products of four unsigned bytes with four signed ones; does not saturate.
pub(super) fn dot_of_four(sum: u32, unsigned: u32, signed: u32) -> u32 {
    let products = unsigned.to_le_bytes().into_iter().zip(signed.to_le_bytes());
    let dot = products.map(|(a, b)| i32::from(a) * i32::from(b.cast_signed()));
    sum.wrapping_add(dot.sum::<i32>().cast_unsigned())
}

/// Applies `shift` to both 16-bit halves of every word.
fn by_halves(a: __m512i, shift: impl Fn(u16) -> u16) -> __m512i {
    __m512i(a.0.map(|word| {
        let [b0, b1, b2, b3] = word.to_le_bytes();
        let [b0, b1] = shift(u16::from_le_bytes([b0, b1])).to_le_bytes();
        let [b2, b3] = shift(u16::from_le_bytes([b2, b3])).to_le_bytes();
        u32::from_le_bytes([b0, b1, b2, b3])
    }))
}

macro_rules! instructions {
    ($($(#[$attribute:meta])* fn $name:ident $(<const $constant:ident: $kind:ty>)?
        ($($operand:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$attribute])*
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) fn $name $(<const $constant: $kind>)? ($($operand: $type),*) $(-> $result)? $body
    )*};
}

instructions! {
    fn _mm512_set1_ps(value: f32) -> __m512 { __m512([value; 16]) }
    fn _mm512_set1_epi32(value: i32) -> __m512i { __m512i([value.cast_unsigned(); 16]) }
    fn _mm512_set1_epi8(value: i8) -> __m512i {
        __m512i([u32::from_le_bytes([value.cast_unsigned(); 4]); 16])
    }

    fn _mm512_cmp_ps_mask<const PREDICATE: i32>(a: __m512, b: __m512) -> u16 {
        assert_eq!(PREDICATE, _CMP_GT_OQ, "no other is used");
        (0..16).fold(0, |mask, lane| mask | u16::from(a.0[lane] > b.0[lane]) << lane)
    }
    fn _mm512_mask_blend_ps(mask: u16, a: __m512, b: __m512) -> __m512 {
        __m512(from_fn(|lane| if mask >> lane & 1 == 1 { b.0[lane] } else { a.0[lane] }))
    }

    fn _mm512_slli_epi32<const COUNT: u32>(a: __m512i) -> __m512i {
        __m512i(a.0.map(|word| word.checked_shl(COUNT).unwrap_or(0)))
    }
    fn _mm512_srl_epi16(a: __m512i, count: __m128i) -> __m512i {
        let count = u32::try_from(_mm_cvtsi128_si64(count)).unwrap_or(u32::MAX);
        by_halves(a, |half| half.checked_shr(count).unwrap_or(0))
    }
    fn _mm512_sll_epi16(a: __m512i, count: __m128i) -> __m512i {
        let count = u32::try_from(_mm_cvtsi128_si64(count)).unwrap_or(u32::MAX);
        by_halves(a, |half| half.checked_shl(count).unwrap_or(0))
    }

    fn _mm512_cvtph_ps(halves: __m256i) -> __m512 {
        __m512(shorts(halves).map(f16_to_f32))
    }
    fn _mm512_cvtepu16_epi32(shorts_of: __m256i) -> __m512i {
        __m512i(shorts(shorts_of).map(u32::from))
    }
    fn _mm512_cvtepu8_epi32(bytes_of: __m128i) -> __m512i {
        __m512i(bytes(bytes_of).map(u32::from))
    }
    fn _mm512_cvtepi8_epi32(bytes_of: __m128i) -> __m512i {
        __m512i(bytes(bytes_of).map(|byte| i32::from(byte.cast_signed()).cast_unsigned()))
    }

    fn _mm512_loadu_ps(source: *const f32) -> __m512 {
        // SAFETY: the caller promises sixteen readable floats.
        unsafe { source.cast::<__m512>().read_unaligned() }
    }
    fn _mm512_storeu_ps(target: *mut f32, value: __m512) {
        // SAFETY: the caller promises room for sixteen floats.
        unsafe { target.cast::<__m512>().write_unaligned(value) }
    }
    fn _mm512_loadu_si512(source: *const __m512i) -> __m512i {
        // SAFETY: the caller promises 64 readable bytes.
        unsafe { source.read_unaligned() }
    }
    fn _mm512_storeu_si512(target: *mut __m512i, value: __m512i) {
        // SAFETY: the caller promises room for 64 bytes.
        unsafe { target.write_unaligned(value) }
    }
}

#[target_feature(enable = "avx2")]
fn shorts(register: __m256i) -> [u16; 16] {
    let words = [
        _mm256_extract_epi64::<0>(register),
        _mm256_extract_epi64::<1>(register),
        _mm256_extract_epi64::<2>(register),
        _mm256_extract_epi64::<3>(register),
    ];
    from_fn(|lane| (words[lane / 4] >> (lane % 4 * 16) & 0xffff).cast_unsigned() as u16)
}

#[target_feature(enable = "avx2")]
fn bytes(register: __m128i) -> [u8; 16] {
    let words = [
        _mm_cvtsi128_si64(register),
        _mm_extract_epi64::<1>(register),
    ];
    from_fn(|lane| (words[lane / 8] >> (lane % 8 * 8) & 0xff).cast_unsigned() as u8)
}
