//! The one instruction of AVX-VNNI that this crate uses, in plain Rust after the operation
//! section of Intel's Software Developer's Manual. For tests.

#![cfg_attr(
    test,
    expect(unsafe_code, reason = "the tests call what needs AVX2 and AVX-VNNI")
)]

use std::arch::x86_64::{__m256i, _mm256_extract_epi32, _mm256_setr_epi32};

use super::avx512_model::dot_of_four;

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn _mm256_dpbusd_avx_epi32(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    let (sum, a, b) = (words(sum), words(a), words(b));
    let lane = |lane: usize| dot_of_four(sum[lane], a[lane], b[lane]).cast_signed();
    _mm256_setr_epi32(
        lane(0),
        lane(1),
        lane(2),
        lane(3),
        lane(4),
        lane(5),
        lane(6),
        lane(7),
    )
}

#[target_feature(enable = "avx2")]
fn words(register: __m256i) -> [u32; 8] {
    let words = [
        _mm256_extract_epi32::<0>(register),
        _mm256_extract_epi32::<1>(register),
        _mm256_extract_epi32::<2>(register),
        _mm256_extract_epi32::<3>(register),
        _mm256_extract_epi32::<4>(register),
        _mm256_extract_epi32::<5>(register),
        _mm256_extract_epi32::<6>(register),
        _mm256_extract_epi32::<7>(register),
    ];
    words.map(i32::cast_unsigned)
}

#[cfg(test)]
mod tests;
