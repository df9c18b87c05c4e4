use super::*;
use crate::simd::{Kernel, Scalar, Tier};
use crate::{Isa, Kernels, Pool};

pub(super) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..len).map(|_| next() * 3.0).collect()
}

pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

struct Apply<'a>(&'a [f32], Function);

#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Exp,
    Tanh,
    Silu,
    Gelu,
}

impl Kernel for Apply<'_> {
    type Output = Vec<f32>;

    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len()];
        for (x, out) in self.0.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let x = load_padded(simd, x);
            let y = match self.1 {
                Function::Exp => math::exp(simd, x),
                Function::Tanh => math::tanh(simd, x),
                Function::Silu => math::silu(simd, x),
                Function::Gelu => math::gelu(simd, x),
            };
            store_partial(simd, y, out);
        }
        out
    }
}

/// One value of a function.
pub(super) fn apply(function: Function, x: f32) -> f32 {
    Apply(&[x], function).run(Scalar)[0]
}

fn samples() -> Vec<f32> {
    let fine = (-100_000..100_000).map(|step| step as f32 / 1000.0);
    fine.chain([f32::NEG_INFINITY, -0.0, 0.0, f32::MIN_POSITIVE, 1e30])
        .collect()
}

#[test]
fn functions_have_the_same_bits_on_every_tier() {
    let x = samples();
    for function in [
        Function::Exp,
        Function::Tanh,
        Function::Silu,
        Function::Gelu,
    ] {
        let expected = bits(&Apply(&x, function).run(Scalar));
        for isa in Isa::ALL {
            let Some(tier) = Tier::new(isa) else { continue };
            assert_eq!(
                bits(&tier.launch(Apply(&x, function))),
                expected,
                "{function:?} {isa:?}"
            );
        }
    }
}

#[test]
fn exp_is_exact_at_zero_vanishes_far_below_and_is_close_between() {
    let exp = |x: &[f32]| Apply(x, Function::Exp).run(Scalar);
    assert_eq!(
        bits(&exp(&[0.0, -0.0, f32::NEG_INFINITY, -87.01])),
        bits(&[1.0, 1.0, 0.0, 0.0])
    );
    let x: Vec<f32> = samples()
        .into_iter()
        .filter(|x| (-86.9..87.9).contains(x))
        .collect();
    for (x, y) in x.iter().zip(exp(&x)) {
        let exact = f64::from(*x).exp();
        assert!(
            (f64::from(y) / exact - 1.0).abs() < 2.4e-7,
            "exp({x}) = {y}"
        );
    }
}

#[test]
fn tanh_silu_and_gelu_are_close_to_the_exact_functions() {
    let x: Vec<f32> = samples().into_iter().filter(|x| x.abs() < 80.0).collect();
    let close = |function, exact: fn(f64) -> f64| {
        for (x, y) in x.iter().zip(Apply(&x, function).run(Scalar)) {
            let exact = exact(f64::from(*x));
            let error = (f64::from(y) - exact).abs();
            assert!(
                error < 4e-7 * exact.abs().max(1.0),
                "{function:?}({x}) = {y}, not {exact}"
            );
        }
    };
    close(Function::Tanh, f64::tanh);
    close(Function::Silu, |x| x / (1.0 + (-x).exp()));
    close(Function::Gelu, |x| {
        0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh())
    });
}

#[test]
fn double_precision_functions_agree_with_the_platform_to_a_few_units() {
    for step in 1..2000 {
        let x = f64::from(step) * 37.1;
        assert!((math::ln(x) - x.ln()).abs() < 1e-14 * x.ln().abs().max(1.0));
        let y = -f64::from(step) / 100.0;
        assert!((math::exp_f64(y) / y.exp() - 1.0).abs() < 1e-13);
        let angle = f64::from(step) * 523.777;
        let (sine, cosine) = math::sin_cos(angle);
        assert!((sine - angle.sin()).abs() < 1e-9 && (cosine - angle.cos()).abs() < 1e-9);
    }
}

/// The formula of `norm.rs`, lane by lane.
fn norm_reference(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut lanes = [0.0_f32; LANES];
    for (index, x) in x.iter().enumerate() {
        lanes[index % LANES] = x.mul_add(*x, lanes[index % LANES]);
    }
    for width in [8, 4, 2, 1] {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    let scale = 1.0 / (lanes[0] / x.len() as f32 + epsilon).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, weight)| (x * scale) * weight)
        .collect()
}

#[test]
fn norms_equal_their_formula_on_every_tier_and_team() {
    for (rows, cols) in [(1, 1), (3, 15), (2, 64), (5, 577), (100, 640)] {
        let input = noise(cols as u64, rows * cols);
        let weight = noise(7, cols);
        let expected: Vec<f32> = input
            .chunks(cols)
            .flat_map(|x| norm_reference(x, &weight, 1e-5))
            .collect();
        for kernels in Kernels::available() {
            for threads in 1..=3 {
                let pool = Pool::new(threads);
                let mut out = vec![0.0; input.len()];
                kernels.rms_norm(&pool, &input, &weight, 1e-5, &mut out);
                assert_eq!(bits(&out), bits(&expected));
                let mut in_place = input.clone();
                kernels.rms_norm_in_place(&pool, &mut in_place, &weight, 1e-5);
                assert_eq!(bits(&in_place), bits(&expected));
            }
        }
    }
}

#[test]
fn rope_turns_pairs_by_position_times_frequency() {
    let (heads, size) = (3, 32);
    let positions = [0, 1, 17, 4000];
    let mut table = RopeTable::new(size, 10_000.0, 1.0, None);
    table.prepare(positions.into_iter());
    let input = noise(3, positions.len() * heads * size);
    for kind in [RopeKind::Interleaved, RopeKind::Neox] {
        let mut out = input.clone();
        Kernels::detect().rope(&Pool::new(2), &mut out, size, &table, kind);
        for (row, position) in positions.iter().enumerate() {
            for pair in 0..size / 2 {
                let angle = f64::from(*position) * 10_000_f64.powf(-(pair as f64) / 16.0);
                let (first, second) = match kind {
                    RopeKind::Interleaved => (2 * pair, 2 * pair + 1),
                    RopeKind::Neox => (pair, pair + size / 2),
                };
                let head = (row * heads + 1) * size;
                let (x, y) = (
                    f64::from(input[head + first]),
                    f64::from(input[head + second]),
                );
                let turned = (
                    x * angle.cos() - y * angle.sin(),
                    x * angle.sin() + y * angle.cos(),
                );
                assert!((f64::from(out[head + first]) - turned.0).abs() < 1e-5);
                assert!((f64::from(out[head + second]) - turned.1).abs() < 1e-5);
            }
        }
    }
}

#[test]
fn element_wise_operations_do_not_depend_on_the_team() {
    let (a, b) = (noise(1, 40_001), noise(2, 40_001));
    let kernels = Kernels::detect();
    let run = |threads: usize| {
        let pool = Pool::new(threads);
        let (mut silu, mut gelu, mut sum) = (a.clone(), a.clone(), a.clone());
        kernels.silu_mul(&pool, &mut silu, &b);
        kernels.gelu_mul(&pool, &mut gelu, &b);
        kernels.softcap(&pool, &mut gelu, 2.0);
        kernels.add(&pool, &mut sum, &b);
        kernels.scale(&mut sum, 0.5);
        [bits(&silu), bits(&gelu), bits(&sum)]
    };
    assert_eq!(run(1), run(3));
}
