//! Elementary functions as fixed sequences of IEEE operations: the same bits everywhere,
//! with no call into a platform's math library.

use crate::simd::{LANES, Simd};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has few enough bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// `e^x` is a normal float from here on; below it we return 0.
const EXP_ARGUMENT_MIN: f32 = -87.0;
const EXP_ARGUMENT_MAX: f32 = 88.0;
/// Minimax coefficients of `(e^r - 1 - r) / r^2` on |r| <= ln 2 / 2, highest power first.
const EXP_POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    5e-1,
];

/// `e^a` with a relative error below 2^-22; exactly 1 at 0, exactly 0 below -87 (so also at
/// minus infinity), and held at `e^88` above.
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, a: S::F) -> S::F {
    let x = simd.max(a, simd.splat(EXP_ARGUMENT_MIN));
    exp_within(simd, a, simd.min(x, simd.splat(EXP_ARGUMENT_MAX)))
}

/// [`exp`] where nothing is above 0.
#[inline(always)]
pub(super) fn exp_of_negative<S: Simd>(simd: S, a: S::F) -> S::F {
    exp_within(simd, a, simd.max(a, simd.splat(EXP_ARGUMENT_MIN)))
}

/// `e^a`, where `x` is `a` held within the arguments that have a normal result.
#[inline(always)]
fn exp_within<S: Simd>(simd: S, a: S::F, x: S::F) -> S::F {
    let power = simd.round_to_int(simd.mul(x, simd.splat(LOG2_E)));
    let whole = simd.int_to_float(power);
    let r = simd.fma(whole, simd.splat(-LN_2_HIGH), x);
    let r = simd.fma(whole, simd.splat(-LN_2_LOW), r);
    let [first, rest @ ..] = EXP_POLYNOMIAL;
    let mut p = simd.splat(first);
    for coefficient in rest {
        p = simd.fma(p, r, simd.splat(coefficient));
    }
    let one_plus_r = simd.add(r, simd.splat(1.0));
    let value = simd.mul(simd.fma(simd.mul(p, r), r, one_plus_r), simd.pow2(power));
    simd.select_greater(simd.splat(EXP_ARGUMENT_MIN), a, simd.splat(0.0), value)
}

/// [`exp`] of one number.
#[inline(always)]
pub(super) fn exp_one<S: Simd>(simd: S, a: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    simd.store(exp(simd, simd.splat(a)), &mut lanes);
    lanes[0]
}

/// Hyperbolic tangent, absolute error below 2^-22.
#[inline(always)]
pub(super) fn tanh<S: Simd>(simd: S, a: S::F) -> S::F {
    let one = simd.splat(1.0);
    let t = exp(simd, simd.mul(simd.abs(a), simd.splat(-2.0)));
    let magnitude = simd.div(simd.sub(one, t), simd.add(one, t));
    let negative = simd.sub(simd.splat(0.0), magnitude);
    simd.select_greater(simd.splat(0.0), a, negative, magnitude)
}

/// `a / (1 + e^-a)`.
#[inline(always)]
pub(super) fn silu<S: Simd>(simd: S, a: S::F) -> S::F {
    let denominator = simd.add(simd.splat(1.0), exp(simd, simd.sub(simd.splat(0.0), a)));
    simd.div(a, denominator)
}

/// The tanh form of GELU: `a/2 * (1 + tanh(sqrt(2/pi) * (a + 0.044715 a^3)))`.
#[inline(always)]
pub(super) fn gelu<S: Simd>(simd: S, a: S::F) -> S::F {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let cubic = simd.fma(simd.mul(a, a), simd.splat(0.044_715), simd.splat(1.0));
    let argument = simd.mul(simd.mul(a, simd.splat(SQRT_2_OVER_PI)), cubic);
    let half = simd.mul(a, simd.splat(0.5));
    simd.fma(half, tanh(simd, argument), half)
}

/// Natural logarithm of a positive normal f64, relative error a few 2^-52: mantissa in
/// [sqrt 1/2, sqrt 2), then the series of `2 atanh((m - 1) / (m + 1))`.
pub(super) fn ln(a: f64) -> f64 {
    let bits = a.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let mut sum = 0.0;
    for term in (0..16).rev() {
        sum = sum * square + 1.0 / f64::from(2 * term + 1);
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * z * sum
}

/// `e^a` in f64 for |a| < 700, by its series on |r| <= ln 2 / 2.
pub(super) fn exp_f64(a: f64) -> f64 {
    let power = (a * std::f64::consts::LOG2_E).round_ties_even();
    let r = a - power * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for term in (1..=16).rev() {
        sum = 1.0 + sum * r / f64::from(term);
    }
    sum * f64::from_bits(((power as i64 + 1023) << 52) as u64)
}

/// (sine, cosine) of an angle below 2^26, absolute error below 2^-46: reduction by pi/2 in
/// two exact parts, then the series on |r| <= pi/4.
pub(super) fn sin_cos(angle: f64) -> (f64, f64) {
    /// pi/2 with its last 27 bits cleared, so that products with a quadrant count are exact.
    const HALF_PI_HIGH: f64 = f64::from_bits(0x3ff9_21fb_5000_0000);
    const HALF_PI_LOW: f64 = std::f64::consts::FRAC_PI_2 - HALF_PI_HIGH;
    let quadrant = (angle * std::f64::consts::FRAC_2_PI).round_ties_even();
    let r = (angle - quadrant * HALF_PI_HIGH) - quadrant * HALF_PI_LOW;
    let square = r * r;
    let (mut sine, mut cosine) = (1.0, 1.0);
    for term in (1..=9).rev() {
        let n = f64::from(2 * term);
        sine = 1.0 - sine * square / (n * (n + 1.0));
        cosine = 1.0 - cosine * square / ((n - 1.0) * n);
    }
    sine *= r;
    match quadrant as i64 & 3 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}
