use proptest::prelude::*;

use super::*;
use crate::simd::{Kernel, Scalar, Tier};
use crate::{Isa, Kernels, Pool};

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..len).map(|_| next() * 3.0).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

struct Apply<'a>(&'a [f32], Function);

#[derive(Clone, Copy, Debug)]
enum Function {
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
        for isa in [Isa::Avx2, Isa::Avx512] {
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

/// A batch over one layer: every sequence's keys and values up to its length are in pages.
struct Scene {
    layout: KvLayout,
    shape: AttentionShape,
    kv: Vec<u16>,
    tables: Vec<Vec<u32>>,
    kv_heads: usize,
    size: usize,
}

impl Scene {
    /// Pages start as NaN, so that a read of an unwritten slot shows.
    fn new(
        lengths: &[usize],
        kv_heads: usize,
        group: usize,
        size: usize,
        window: Option<u32>,
    ) -> Self {
        let layout = KvLayout::new(&[(1, 16), (kv_heads, size)]);
        let pages: usize = lengths
            .iter()
            .map(|length| length.div_ceil(PAGE_TOKENS))
            .sum();
        let mut kv = vec![0x7e01; (pages + 1) * layout.page_elements()];
        let mut free = (1..=pages as u32).rev();
        let (kernels, pool) = (Kernels::detect(), Pool::new(1));
        let tables = lengths.iter().enumerate().map(|(sequence, length)| {
            let table: Vec<u32> = free.by_ref().take(length.div_ceil(PAGE_TOKENS)).collect();
            let rows: Vec<KvRow> = (0..*length)
                .map(|at| KvRow {
                    page: table[at / PAGE_TOKENS],
                    slot: (at % PAGE_TOKENS) as u32,
                })
                .collect();
            let keys = noise(2 * sequence as u64 + 1, length * kv_heads * size);
            let values = noise(2 * sequence as u64 + 2, length * kv_heads * size);
            kernels.kv_write(&pool, (&mut kv, &layout, 1), &rows, (&keys, &values));
            table
        });
        let tables = tables.collect();
        let shape = AttentionShape {
            heads: kv_heads * group,
            scale: 0.125,
            window,
            softcap: None,
        };
        Self {
            layout,
            shape,
            kv,
            tables,
            kv_heads,
            size,
        }
    }

    fn attend(&self, kernels: &Kernels, threads: usize, rows: &[AttentionRow]) -> Vec<f32> {
        let cols = self.shape.heads * self.size;
        let query =
            |row: &AttentionRow| noise(u64::from(row.position * 31 + row.sequence) + 99, cols);
        let queries: Vec<f32> = rows.iter().flat_map(query).collect();
        let tables: Vec<&[u32]> = self.tables.iter().map(Vec::as_slice).collect();
        let mut out = vec![f32::NAN; queries.len()];
        let pages = (self.kv.as_slice(), &self.layout, 1);
        kernels.attention(
            &Pool::new(threads),
            pages,
            &self.shape,
            (&queries, rows, &tables),
            &mut out,
        );
        out
    }

    fn value(&self, sequence: u32, position: usize, offset: usize) -> f64 {
        let page = self.tables[sequence as usize][position / PAGE_TOKENS] as usize;
        f64::from(crate::f16_to_f32(
            self.kv[page * self.layout.page_elements() + offset],
        ))
    }

    /// The textbook formula in f64.
    fn exact(&self, row: AttentionRow) -> Vec<f64> {
        let layer = self.layout.layers[1];
        let cols = self.shape.heads * self.size;
        let query = noise(u64::from(row.position * 31 + row.sequence) + 99, cols);
        let mut out = vec![0.0; cols];
        for head in 0..self.shape.heads {
            let kv_head = head / (self.shape.heads / self.kv_heads);
            let visible = self.shape.visible(row.position as usize);
            let score = |position: usize| -> f64 {
                let at = layer.keys(kv_head) + position % PAGE_TOKENS;
                let products = (0..self.size).map(|d| {
                    f64::from(query[head * self.size + d])
                        * self.value(row.sequence, position, at + d * PAGE_TOKENS)
                });
                let raw = products.sum::<f64>() * f64::from(self.shape.scale);
                self.shape
                    .softcap
                    .map_or(raw, |cap| f64::from(cap) * (raw / f64::from(cap)).tanh())
            };
            let scores: Vec<f64> = visible.clone().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            for (position, score) in visible.zip(scores) {
                let at = layer.values(kv_head) + (position % PAGE_TOKENS) * self.size;
                for d in 0..self.size {
                    let value = self.value(row.sequence, position, at + d);
                    out[head * self.size + d] += (score - max).exp() / total * value;
                }
            }
        }
        out
    }
}

#[test]
fn attention_equals_the_textbook_formula() {
    for (length, window, softcap) in [
        (1, None, None),
        (64, None, None),
        (65, None, Some(5.0)),
        (200, Some(70), None),
        (2100, None, None),
        (2100, Some(1500), None),
    ] {
        let mut scene = Scene::new(&[length], 2, 3, 32, window);
        scene.shape.softcap = softcap;
        let row = AttentionRow {
            position: length as u32 - 1,
            sequence: 0,
        };
        let out = scene.attend(&Kernels::detect(), 1, &[row]);
        for (found, exact) in out.iter().zip(scene.exact(row)) {
            assert!(
                (f64::from(*found) - exact).abs() < 2e-5,
                "{found} is not {exact}, length {length}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every row alone on one scalar thread, against any batch on any tier and team.
    #[test]
    fn attention_of_a_row_does_not_depend_on_its_batch(
        lengths in proptest::collection::vec(1_usize..260, 1..4),
        group in 1_usize..8, kv_heads in 1_usize..3,
        window in proptest::option::of(1_u32..150),
        tail in 1_usize..70,
    ) {
        let scene = Scene::new(&lengths, kv_heads, group, 16, window);
        let rows: Vec<AttentionRow> = lengths.iter().enumerate().flat_map(|(sequence, length)| {
            let first = length.saturating_sub(tail);
            (first..*length).map(move |position| AttentionRow { position: position as u32, sequence: sequence as u32 })
        }).collect();
        let scalar = Kernels::with_isa(Isa::Scalar).unwrap();
        let alone: Vec<f32> = rows.iter().flat_map(|row| scene.attend(&scalar, 1, &[*row])).collect();
        for kernels in Kernels::available() {
            for threads in 1..=3 {
                prop_assert_eq!(bits(&scene.attend(&kernels, threads, &rows)), bits(&alone));
            }
        }
    }
}

#[test]
fn a_copied_page_prefix_attends_like_the_original() {
    let mut scene = Scene::new(&[50], 2, 2, 32, None);
    let row = AttentionRow {
        position: 39,
        sequence: 0,
    };
    let expected = scene.attend(&Kernels::detect(), 1, &[row]);
    let original = scene.tables[0][0];
    scene.layout.copy_tokens(&mut scene.kv, original, 0, 40);
    scene.tables[0][0] = 0;
    assert_eq!(
        bits(&scene.attend(&Kernels::detect(), 1, &[row])),
        bits(&expected)
    );
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
        kernels.add_bias(&mut sum, &b);
        kernels.scale(&mut sum, 0.5);
        [bits(&silu), bits(&gelu), bits(&sum)]
    };
    assert_eq!(run(1), run(3));
}
