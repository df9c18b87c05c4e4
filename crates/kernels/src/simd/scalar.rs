//! Arrays of lanes: the meaning of every operation, and the tier for CPUs without another.

use super::{LANES, Simd, half};
use crate::activations::Operand;

/// The tier that every CPU has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

type F = [f32; LANES];
type I = [i32; LANES];

#[inline(always)]
fn lanes<T: Copy + Default, R: Copy + Default>(a: &[T; LANES], f: impl Fn(T) -> R) -> [R; LANES] {
    std::array::from_fn(|lane| f(a[lane]))
}

#[inline(always)]
fn pairs<T: Copy, R>(a: &[T; LANES], b: &[T; LANES], f: impl Fn(T, T) -> R) -> [R; LANES] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

impl Simd for Scalar {
    type F = F;
    type I = I;
    type Codes = [u8; 64];

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, source: &F) -> F {
        *source
    }
    #[inline(always)]
    fn store(self, value: F, target: &mut F) {
        *target = value;
    }
    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> F {
        lanes(source, half::f16_to_f32)
    }
    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> F {
        lanes(source, half::bf16_to_f32)
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        pairs(&a, &b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        pairs(&a, &b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        pairs(&a, &b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        pairs(&a, &b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        pairs(&a, &b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        pairs(&a, &b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        lanes(&a, f32::abs)
    }
    #[inline(always)]
    fn select_greater(self, a: F, b: F, x: F, y: F) -> F {
        std::array::from_fn(|lane| if a[lane] > b[lane] { x[lane] } else { y[lane] })
    }
    #[inline(always)]
    fn round_to_int(self, a: F) -> I {
        lanes(&a, |a: f32| a.round_ties_even() as i32)
    }
    #[inline(always)]
    fn int_to_float(self, a: I) -> F {
        lanes(&a, |a: i32| a as f32)
    }
    #[inline(always)]
    fn pow2(self, a: I) -> F {
        lanes(&a, |a: i32| f32::from_bits(((a + 127) << 23) as u32))
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> I {
        [value; LANES]
    }
    #[inline(always)]
    fn store_int(self, value: I, target: &mut I) {
        *target = value;
    }
    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        pairs(&a, &b, i32::wrapping_add)
    }
    #[inline(always)]
    fn load_bytes(self, source: &[u8; LANES]) -> I {
        lanes(source, i32::from)
    }
    #[inline(always)]
    fn load_signed_bytes(self, source: &[i8; LANES]) -> I {
        lanes(source, i32::from)
    }

    #[inline(always)]
    fn load_codes(self, source: &[u8; 64]) -> [u8; 64] {
        *source
    }
    #[inline(always)]
    fn store_codes(self, value: [u8; 64], target: &mut [u8; 64]) {
        *target = value;
    }
    #[inline(always)]
    fn shift_right_and<const SHIFT: i32>(self, a: [u8; 64], mask: u8) -> [u8; 64] {
        a.map(|code| (code >> SHIFT) & mask)
    }
    #[inline(always)]
    fn shift_left_and<const SHIFT: i32>(self, a: [u8; 64], mask: u8) -> [u8; 64] {
        a.map(|code| (code << SHIFT) & mask)
    }
    #[inline(always)]
    fn or_codes(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|byte| a[byte] | b[byte])
    }
    const ROWS: usize = 1;
    #[inline(always)]
    fn dot<const BITS: u32, const N: usize, const R: usize>(
        self,
        codes: &[[u8; 64]; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [I; R] {
        let centre = if centred { 1 << (BITS - 1) } else { 0 };
        rows.map(|row| {
            let mut sums = [0; LANES];
            for (codes, activations) in codes.iter().zip(row.codes) {
                for (sum, lane) in sums.iter_mut().zip(codes.as_chunks::<4>().0) {
                    let products = lane.iter().zip(activations);
                    *sum += products
                        .map(|(code, a)| (i32::from(*code) - centre) * i32::from(*a))
                        .sum::<i32>();
                }
            }
            sums
        })
    }
    #[inline(always)]
    fn prefetch<T>(self, _source: &[T], _offset: usize) {}
}
