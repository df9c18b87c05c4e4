use super::*;
use crate::activations::Block;

/// Every operation of `S` over seeded lanes, as one list of bits.
struct Trace {
    seed: u64,
}

fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 16
}

impl Trace {
    fn floats(&mut self) -> [f32; LANES] {
        std::array::from_fn(|_| {
            let random = next(&mut self.seed);
            match random % 16 {
                0 => 0.0,
                1 => -0.0,
                2 => f32::MIN_POSITIVE / 3.0,
                3 => 65_519.996,
                4 => -65_520.0,
                5 => 5.9e-8,
                6 => 2.0_f32.powi(-25),
                7 => f32::INFINITY,
                _ => ((random >> 8) as i32 % 20_000_001 - 10_000_000) as f32 / 4096.0,
            }
        })
    }
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| next(&mut self.seed) as u8)
    }
    fn activations<const N: usize>(&mut self) -> [[i8; 4]; N] {
        std::array::from_fn(|_| {
            std::array::from_fn(|_| (next(&mut self.seed) % 255) as i8).map(|a: i8| a.max(-127))
        })
    }
}

impl Kernel for Trace {
    type Output = Vec<u32>;
    const HAS_DOTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Vec<u32> {
        let mut out = Vec::new();
        let mut float = |value: S::F| {
            let mut lanes = [0.0; LANES];
            simd.store(value, &mut lanes);
            // The payload of a NaN is not part of the contract.
            out.extend(lanes.map(|lane| {
                if lane.is_nan() {
                    u32::MAX
                } else {
                    lane.to_bits()
                }
            }));
        };
        let (a, b, c) = (self.floats(), self.floats(), self.floats());
        let (a, b, c) = (simd.load(&a), simd.load(&b), simd.load(&c));
        float(simd.splat(simd.fold_sum(a)));
        float(simd.splat(simd.fold_max(a) + 0.0));
        float(simd.add(a, b));
        float(simd.sub(a, b));
        float(simd.mul(a, b));
        float(simd.div(a, b));
        float(simd.fma(a, b, c));
        float(simd.max(a, b));
        float(simd.min(a, b));
        float(simd.abs(a));
        float(simd.select_greater(a, b, c, a));
        float(simd.splat(3.5));
        let halves: [u16; LANES] = std::array::from_fn(|_| next(&mut self.seed) as u16);
        float(simd.load_f16(&halves));
        float(simd.load_bf16(&halves));
        let small: [f32; LANES] =
            std::array::from_fn(|_| (next(&mut self.seed) % 254) as f32 - 126.0);
        let small = simd.round_to_int(simd.load(&small));
        float(simd.pow2(small));
        float(simd.int_to_float(small));

        self.trace_integers(simd, &mut out);
        out
    }
}

impl Trace {
    #[inline(always)]
    fn trace_integers<S: Simd>(&mut self, simd: S, out: &mut Vec<u32>) {
        let small: [f32; LANES] = std::array::from_fn(|lane| lane as f32 * 1_000_003.0);
        let small = simd.round_to_int(simd.load(&small));
        let mut int = |value: S::I| {
            let mut lanes = [0; LANES];
            simd.store_int(value, &mut lanes);
            out.extend(lanes.map(i32::cast_unsigned));
        };
        let ties: [f32; LANES] = std::array::from_fn(|lane| lane as f32 - 7.5);
        int(simd.round_to_int(simd.load(&ties)));
        int(simd.add_int(small, simd.splat_int(i32::MAX)));
        int(simd.load_bytes(&self.bytes()));
        int(simd.load_signed_bytes(&self.bytes().map(u8::cast_signed)));
        let raw: [[u8; 64]; 8] = std::array::from_fn(|_| self.bytes());
        let codes = raw.map(|vector| simd.load_codes(&vector));
        let rows = std::array::from_fn(|_| Block::new(self.activations::<8>()));
        dots(simd, &codes, &rows, out);
        // The extremes of the head-room.
        let extremes = [
            [127; 4],
            [-127; 4],
            [127, 127, -127, -127],
            [127, -127, 127, -127],
        ];
        let extremes = extremes.map(|four| Block::new([four; 8]));
        for byte in [0, 0x0f, 0x1f, 0x3f, 0x80, 0xff] {
            dots(simd, &[simd.load_codes(&[byte; 64]); 8], &extremes, out);
        }
        for vector in simd.sixteens(codes[0]) {
            let mut bytes = [0; 64];
            simd.store_codes(vector, &mut bytes);
            out.extend(bytes.map(u32::from));
        }
        let mut bytes = [0; 64];
        simd.store_codes(simd.or_codes(codes[0], codes[1]), &mut bytes);
        out.extend(bytes.map(u32::from));
    }
}

/// Every kind of dot product, for one, two and four rows. Inlined, like all that the tier's
/// entry calls: the assembler of some needs its features.
#[inline(always)]
fn dots<S: Simd>(simd: S, codes: &[S::Codes; 8], rows: &[Block; 4], out: &mut Vec<u32>) {
    dots_of(simd, codes, rows, out);
    let (pairs, _) = rows.as_chunks::<2>();
    dots_of(simd, codes, &pairs[0], out);
    let (ones, _) = rows.as_chunks::<1>();
    dots_of(simd, codes, &ones[0], out);
}

#[inline(always)]
fn dots_of<S: Simd, const R: usize>(
    simd: S,
    codes: &[S::Codes; 8],
    rows: &[Block; R],
    out: &mut Vec<u32>,
) {
    let mut ints = |values: [S::I; R]| {
        for value in values {
            let mut lanes = [0; LANES];
            simd.store_int(value, &mut lanes);
            out.extend(lanes.map(i32::cast_unsigned));
        }
    };
    let whole = || rows.each_ref().map(Block::whole);
    let (four, five) = (
        codes.map(|codes| simd.shift_right_and::<4>(codes, 0x0f)),
        codes.map(|codes| simd.shift_right_and::<3>(codes, 0x1f)),
    );
    ints(simd.dot::<4, 8, R>(&four, whole(), false));
    ints(simd.dot::<4, 8, R>(&four, whole(), true));
    ints(simd.dot::<5, 8, R>(&five, whole(), false));
    ints(simd.dot::<5, 8, R>(&five, whole(), true));
    ints(simd.dot::<8, 8, R>(codes, whole(), true));
    for half in 0..2 {
        let halves = || rows.each_ref().map(|row| row.halves()[half]);
        let codes = &codes.as_chunks::<4>().0[half];
        let six = codes.map(|codes| simd.shift_left_and::<2>(codes, 0x3c));
        ints(simd.dot::<6, 4, R>(&six, halves(), true));
        let six = codes.map(|codes| simd.shift_right_and::<2>(codes, 0x3f));
        ints(simd.dot::<6, 4, R>(&six, halves(), true));
        ints(simd.dot::<6, 4, R>(
            &codes.map(|v| simd.shift_right_and::<0>(v, 0x3f)),
            halves(),
            true,
        ));
        ints(simd.dot::<8, 4, R>(codes, halves(), true));
    }
}

#[test]
fn every_operation_equals_the_scalar_one_on_every_tier() {
    for isa in Isa::ALL {
        let Some(tier) = Tier::new(isa) else { continue };
        for seed in 0..2000 {
            let expected = Trace { seed }.run(Scalar);
            assert_eq!(
                tier.launch(Trace { seed }),
                expected,
                "{isa:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn half_floats_survive_a_round_trip_and_ties_go_to_even() {
    for bits in 0..=u16::MAX {
        let wide = half::f16_to_f32(bits);
        if wide.is_nan() {
            assert!(half::f16_to_f32(half::f32_to_f16(wide)).is_nan());
        } else {
            assert_eq!(half::f32_to_f16(wide), bits);
        }
    }
    assert_eq!(half::f32_to_f16(1.0 + 2.0_f32.powi(-11)), 0x3c00);
    assert_eq!(half::f32_to_f16(1.0 + 3.0 * 2.0_f32.powi(-11)), 0x3c02);
    assert_eq!(half::f32_to_f16(65_519.996), 0x7bff);
    assert_eq!(half::f32_to_f16(65_520.0), 0x7c00);
}

#[test]
fn bfloat16_survives_a_round_trip_and_ties_go_to_even() {
    for bits in 0..=u16::MAX {
        let wide = half::bf16_to_f32(bits);
        let back = half::f32_to_bf16(wide);
        assert!(back == bits || wide.is_nan() && half::bf16_to_f32(back).is_nan());
    }
    let between = |bits: u16| f32::from_bits(u32::from(bits) << 16 | 0x8000);
    assert_eq!(half::f32_to_bf16(between(0x3f80)), 0x3f80);
    assert_eq!(half::f32_to_bf16(between(0x3f81)), 0x3f82);
    assert_eq!(half::f32_to_bf16(f32::MAX), 0x7f80);
    assert!(half::bf16_to_f32(half::f32_to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
}
