//! IEEE 754 binary16 and bfloat16 conversions, bit for bit as the hardware does them.

/// Widens a half float, exactly; NaN becomes quiet and keeps its payload.
#[must_use]
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let mantissa = u32::from(bits & 0x3ff);
    match exponent {
        // Zero and subnormals: mantissa * 2^-24, exact in f32.
        0 => {
            let magnitude = (mantissa as f32) * f32::from_bits(0x3380_0000);
            f32::from_bits(sign | magnitude.to_bits())
        }
        0x1f if mantissa != 0 => f32::from_bits(sign | 0x7fc0_0000 | (mantissa << 13)),
        0x1f => f32::from_bits(sign | 0x7f80_0000),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13)),
    }
}

/// Rounds to the nearest half float, ties to even; overflow becomes infinity.
#[must_use]
#[inline]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | ((magnitude >> 13) & 0x3ff) as u16;
    }
    // 65520 and above round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14: adding 0.5 aligns the subnormal's last bit with the float's, and the
    // addition rounds to nearest even.
    if magnitude < 0x3880_0000 {
        let aligned = f32::from_bits(magnitude) + 0.5;
        return sign | (aligned.to_bits() - 0.5_f32.to_bits()) as u16;
    }
    let odd = (magnitude >> 13) & 1;
    let rounded = magnitude + 0xfff + odd - (112 << 23);
    sign | (rounded >> 13) as u16
}

/// Widens a bfloat16, exactly.
#[must_use]
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to the nearest bfloat16, ties to even; overflow becomes infinity, and NaN quiet.
#[must_use]
#[inline]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}
