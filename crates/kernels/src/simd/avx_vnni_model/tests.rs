use std::arch::x86_64::*;

use super::_mm256_dpbusd_avx_epi32 as modelled;
use super::words;

/// The same by other instructions: bytes are widened to 16 bits, whose products are summed
/// exactly in 32.
#[target_feature(enable = "avx2")]
fn widened(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    let even_a = _mm256_and_si256(a, _mm256_set1_epi16(0xff));
    let even_b = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b));
    let even = _mm256_madd_epi16(even_a, even_b);
    let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(a), _mm256_srai_epi16::<8>(b));
    _mm256_add_epi32(sum, _mm256_add_epi32(even, odd))
}

/// Random words, among them many of extreme bytes.
#[target_feature(enable = "avx2")]
fn vector(state: &mut u64) -> __m256i {
    let mut word = || {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let random = (*state >> 32) as i32;
        match random & 7 {
            0 => -1,
            1 => i32::from_le_bytes([0x80; 4]),
            2 => i32::MAX,
            3 => i32::from_le_bytes([0x7f; 4]),
            _ => random >> 3 ^ random << 7,
        }
    };
    let mut four = || (word(), word(), word(), word());
    let (low, high) = (four(), four());
    _mm256_setr_epi32(low.0, low.1, low.2, low.3, high.0, high.1, high.2, high.3)
}

#[target_feature(enable = "avx2")]
fn compare(instruction: impl Fn(__m256i, __m256i, __m256i) -> __m256i) {
    let mut state = 1;
    for _ in 0..10_000 {
        let (sum, a, b) = (vector(&mut state), vector(&mut state), vector(&mut state));
        assert_eq!(words(modelled(sum, a, b)), words(instruction(sum, a, b)));
    }
}

#[test]
fn the_model_is_its_definition() {
    #[target_feature(enable = "avx2")]
    fn run() {
        compare(|sum, a, b| widened(sum, a, b));
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        unsafe { run() };
    }
}

#[test]
fn the_model_is_the_instruction_where_there_is_one() {
    #[target_feature(enable = "avx2,avxvnni")]
    fn run() {
        compare(|sum, a, b| _mm256_dpbusd_avx_epi32(sum, a, b));
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni") {
        // SAFETY: the CPU has AVX2 and AVX-VNNI.
        unsafe { run() };
    }
}
