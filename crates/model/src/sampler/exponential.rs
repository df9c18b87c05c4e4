//! Exponential and logarithm as fixed sequences of IEEE operations: the same bits on every
//! machine, which the platform's mathematics library does not promise.

use std::f64::consts::{LN_2, SQRT_2};

/// Least argument whose exponential is not flushed to zero.
const LEAST: f32 = -87.0;
/// Adding this rounds a small number to an integer and leaves it in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with zeros at its end so that its products are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// e^x for x <= 0, with a relative error below 2e-7; 0 below -87.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7, then n is
/// added to the exponent. No branch, so that loops over it can be vectorised.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    let clamped = if x > LEAST { x } else { LEAST };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUNDER;
    let n = rounded - ROUNDER;
    let r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    let mut polynomial = 1.0 / 5040.0;
    polynomial = polynomial * r + 1.0 / 720.0;
    polynomial = polynomial * r + 1.0 / 120.0;
    polynomial = polynomial * r + 1.0 / 24.0;
    polynomial = polynomial * r + 1.0 / 6.0;
    polynomial = polynomial * r + 0.5;
    polynomial = polynomial * r + 1.0;
    polynomial = polynomial * r + 1.0;
    // The low bits of `rounded` are n, and n is at least -126.
    let scaled = polynomial.to_bits().wrapping_add(rounded.to_bits() << 23);
    if x > LEAST {
        f32::from_bits(scaled)
    } else {
        0.0
    }
}

/// Natural logarithm of a positive, finite, normal number, to within 1e-15 relative.
///
/// x = 2^e m with m in [1/sqrt 2, sqrt 2), ln m = 2 artanh((m - 1) / (m + 1)).
pub(super) fn ln(x: f64) -> f64 {
    const EXPONENT_BIAS: i64 = 1023;
    let bits = x.to_bits();
    let mut exponent = i64::try_from(bits >> 52).unwrap_or_default() - EXPONENT_BIAS;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa >= SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    // |ratio| < 0.172, so the eleventh term is below 1e-17.
    let mut series = 0.0;
    for term in (0..11).rev() {
        series = series * square + 1.0 / f64::from(2 * term + 1);
    }
    let exponent = i32::try_from(exponent).unwrap_or_default();
    f64::from(exponent) * LN_2 + 2.0 * ratio * series
}

#[cfg(test)]
mod tests;
