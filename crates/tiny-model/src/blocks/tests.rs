//! Random blocks are valid and spread as asked.

use super::{FORMATS, half_bits, pack_six_bits, write};
use crate::random::Random;

/// Binary16 to `f32`, by the definition.
fn half_value(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 1023) / 1024.0;
    let magnitude = match exponent {
        0 => fraction * 2_f32.powi(-14),
        31 => f32::INFINITY,
        _ => (1.0 + fraction) * 2_f32.powi(exponent - 15),
    };
    sign * magnitude
}

#[test]
fn every_half_is_written_as_itself() {
    for bits in (0..=u16::MAX).filter(|bits| half_value(*bits).is_finite()) {
        assert_eq!(half_bits(half_value(bits)), bits, "{bits:04x}");
    }
}

#[test]
fn halves_round_to_the_nearest_and_ties_to_even() {
    let steps = [1.0, 6.0e-5, 3.0e-7, 1024.0];
    for start in steps {
        for step in 0_u16..500 {
            let value = start * (1.0 + f32::from(step) * 0.000_31);
            let bits = half_bits(value);
            let error = |bits: u16| (half_value(bits) - value).abs();
            assert!(error(bits) <= error(bits - 1) && error(bits) <= error(bits + 1));
        }
    }
    assert_eq!(half_bits(1.0 + 1.0 / 2048.0), 0x3c00);
    assert_eq!(half_bits(1.0 + 3.0 / 2048.0), 0x3c02);
}

#[test]
fn six_bit_scales_unpack_as_ggml_reads_them() {
    let scales = [1, 2, 3, 63, 5, 22, 39, 60];
    let minimums = [9, 10, 43, 12, 63, 30, 15, 16];
    let packed = pack_six_bits(scales, minimums);
    for index in 0..4 {
        assert_eq!(packed[index] & 63, scales[index]);
        assert_eq!(packed[index + 4] & 63, minimums[index]);
        let high = (packed[index] >> 6) << 4;
        assert_eq!(packed[index + 8] & 15 | high, scales[index + 4]);
        let high = (packed[index + 4] >> 6) << 4;
        assert_eq!(packed[index + 8] >> 4 | high, minimums[index + 4]);
    }
}

#[test]
fn every_format_writes_whole_blocks() {
    for format in FORMATS {
        let mut bytes = Vec::new();
        let mut random = Random::new(7, format.name());
        for _ in 0..100 {
            write(format, 0.1, &mut random, &mut bytes);
        }
        assert_eq!(bytes.len(), 100 * format.block_bytes(), "{format}");
    }
}
