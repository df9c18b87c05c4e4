//! Random blocks of the weight formats. Codes are drawn uniformly and the scale of a block
//! is chosen so that its weights have mean about zero and a wanted standard deviation. No
//! float is quantized: what a format can store is explored more evenly this way, and no
//! second copy of the quantizers is needed.

use relight_gguf::GgmlType;

use crate::random::Random;

/// Standard deviation of whole numbers spread evenly over 4, 5, 6 and 8 bits.
const DEVIATION_4_BITS: f32 = 4.61;
const DEVIATION_5_BITS: f32 = 9.23;
const DEVIATION_6_BITS: f32 = 18.47;
const DEVIATION_8_BITS: f32 = 73.6;
/// Means of the sub-block scales that are drawn below.
const K_SCALE_MEAN: f32 = 42.0;
const Q6_SCALE_MEAN: f32 = 72.0;
/// Uniform numbers in `[-a, a)` have the deviation `a / sqrt(3)`.
const UNIFORM_REACH: f32 = 1.732_050_8;

/// The formats that [`write`] knows.
pub const FORMATS: [GgmlType; 11] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q8_0,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

/// Appends one block of weights with this standard deviation.
///
/// # Panics
/// If the format is not one of [`FORMATS`].
pub(crate) fn write(format: GgmlType, deviation: f32, random: &mut Random, target: &mut Vec<u8>) {
    match format {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => {
            float(format, deviation, random, target);
        }
        GgmlType::Q8_0 => {
            half(jitter(deviation / DEVIATION_8_BITS, random), target);
            // -128 never occurs in files: quantizers scale to 127.
            target.extend((0..32).map(|_| random.whole(0, 254).wrapping_sub(127)));
        }
        GgmlType::Q4_0 | GgmlType::Q4_1 | GgmlType::Q5_0 | GgmlType::Q5_1 => {
            small_block(format, deviation, random, target);
        }
        GgmlType::Q4_K | GgmlType::Q5_K => k_block(format, deviation, random, target),
        GgmlType::Q6_K => q6_k(deviation, random, target),
        other => assert!(FORMATS.contains(&other), "no random blocks of {other}"),
    }
}

fn float(format: GgmlType, deviation: f32, random: &mut Random, target: &mut Vec<u8>) {
    let reach = deviation * UNIFORM_REACH;
    let value = random.between(-reach, reach);
    match format {
        GgmlType::F16 => half(value, target),
        GgmlType::BF16 => target.extend_from_slice(&value.to_le_bytes()[2..]),
        _ => target.extend_from_slice(&value.to_le_bytes()),
    }
}

/// 32 codes of 4 or 5 bits: `d * (q - middle)`, or `d * q + m` with `m = -middle * d`.
fn small_block(format: GgmlType, deviation: f32, random: &mut Random, target: &mut Vec<u8>) {
    let five_bits = matches!(format, GgmlType::Q5_0 | GgmlType::Q5_1);
    let has_minimum = matches!(format, GgmlType::Q4_1 | GgmlType::Q5_1);
    let (code_deviation, middle) = if five_bits {
        (DEVIATION_5_BITS, 15.5)
    } else {
        (DEVIATION_4_BITS, 7.5)
    };
    // Without a minimum the codes are centred half a step off; the sign evens that out.
    let scale = jitter(deviation / code_deviation, random) * random.sign();
    half(scale, target);
    if has_minimum {
        half(-middle * scale, target);
    }
    if five_bits {
        target.extend(random.bytes::<4>());
    }
    target.extend(random.bytes::<16>());
}

/// 256 codes of 4 or 5 bits in sub-blocks of 32: `d * scale * q - dmin * minimum`.
fn k_block(format: GgmlType, deviation: f32, random: &mut Random, target: &mut Vec<u8>) {
    let five_bits = format == GgmlType::Q5_K;
    let (code_deviation, middle) = if five_bits {
        (DEVIATION_5_BITS, 15.5)
    } else {
        (DEVIATION_4_BITS, 7.5)
    };
    let scale = jitter(deviation / (code_deviation * K_SCALE_MEAN), random);
    half(scale, target);
    half(scale * middle, target);
    let scales: [u8; 8] = std::array::from_fn(|_| random.whole(21, 63));
    let minimums = scales.map(|scale| scale.saturating_sub(random.whole(0, 2)));
    target.extend(pack_six_bits(scales, minimums));
    if five_bits {
        target.extend(random.bytes::<32>());
    }
    target.extend(random.bytes::<128>());
}

/// ggml's packing of eight 6-bit scales and eight 6-bit minimums:
/// ```text
///   byte 0..4   scale 0..4   (6 bits) | high 2 bits of scale 4..8
///   byte 4..8   minimum 0..4 (6 bits) | high 2 bits of minimum 4..8
///   byte 8..12  low 4 bits of scale 4..8 | low 4 bits of minimum 4..8
/// ```
fn pack_six_bits(scales: [u8; 8], minimums: [u8; 8]) -> [u8; 12] {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = scales;
    let [m0, m1, m2, m3, m4, m5, m6, m7] = minimums;
    let high = |low: u8, high: u8| low | (high >> 4) << 6;
    let low = |scale: u8, minimum: u8| (scale & 15) | (minimum & 15) << 4;
    [
        high(s0, s4),
        high(s1, s5),
        high(s2, s6),
        high(s3, s7),
        high(m0, m4),
        high(m1, m5),
        high(m2, m6),
        high(m3, m7),
        low(s4, m4),
        low(s5, m5),
        low(s6, m6),
        low(s7, m7),
    ]
}

/// 256 codes of 6 bits in sub-blocks of 16: `d * scale * (q - 32)` with signed scales.
fn q6_k(deviation: f32, random: &mut Random, target: &mut Vec<u8>) {
    target.extend(random.bytes::<192>());
    for _ in 0..16 {
        let magnitude = random.whole(17, 127);
        let negative = random.bits() & 1 == 1;
        target.push(if negative {
            magnitude.wrapping_neg()
        } else {
            magnitude
        });
    }
    let scale = deviation / (DEVIATION_6_BITS * Q6_SCALE_MEAN);
    half(jitter(scale, random), target);
}

/// Blocks differ in scale, so that a kernel that mixes them up is seen.
fn jitter(scale: f32, random: &mut Random) -> f32 {
    scale * random.between(0.6, 1.4)
}

fn half(value: f32, target: &mut Vec<u8>) {
    target.extend_from_slice(&half_bits(value).to_le_bytes());
}

/// IEEE binary16, rounded to nearest even. `value` must be finite and in range.
fn half_bits(value: f32) -> u16 {
    const SMALLEST_NORMAL: f32 = 6.103_515_6e-5;
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = if value.abs() < SMALLEST_NORMAL {
        // In steps of 2^-24; adding 2^23 makes the addition round to a whole step.
        ((value.abs() * 16_777_216.0 + 8_388_608.0).to_bits()) & 0x7f_ffff
    } else {
        let even = ((bits >> 13) & 1) + 0xfff;
        (((bits & 0x7fff_ffff) - (112 << 23)) + even) >> 13
    };
    assert!(magnitude < 0x7c00, "{value} does not fit a half");
    u16::try_from(sign | magnitude).unwrap_or(0)
}

#[cfg(test)]
mod tests;
