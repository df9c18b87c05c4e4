use super::*;
use crate::sample::Sample;
use crate::{reference, repack, tile_bytes};

struct Case {
    format: Format,
    /// Rows of weights.
    n: usize,
    /// Columns of both.
    k: usize,
    /// Rows of activations.
    m: usize,
    weights: Vec<u8>,
    values: Vec<f32>,
    /// By the specification, (m, n).
    expected: Vec<f32>,
}

impl Case {
    fn new(sample: &mut Sample, format: Format, n: usize, k: usize, m: usize) -> Self {
        let source = sample.weights(format, n, k);
        let values = sample.activations(m, k);
        let rows = || source.chunks_exact(format.row_bytes(k));
        let products = values
            .chunks_exact(k)
            .flat_map(|values| rows().map(move |row| reference::dot(format, row, values)));
        let expected = products.collect();
        let mut weights = vec![0; tile_bytes(format, n, k)];
        repack(format, n, k, &source, &mut weights);
        Self {
            format,
            n,
            k,
            m,
            weights,
            values,
            expected,
        }
    }

    fn tiles(&self) -> Tiles<'_> {
        Tiles::new(self.format, self.n, self.k, &self.weights).unwrap()
    }

    /// Demands the same bits on every tier.
    fn check(&self, threads: usize) {
        let pool = Pool::new(threads);
        for kernels in Kernels::available() {
            let mut activations = Activations::new();
            activations.resize(self.m, self.k);
            activations.values_mut().copy_from_slice(&self.values);
            kernels.quantize(&pool, &mut activations);
            let mut out = vec![12345.0; self.m * self.n];
            let product = Product::new(self.tiles(), &mut out);
            kernels.matmul(&pool, &activations, [product]);
            let rows = out.chunks(self.n).zip(self.expected.chunks(self.n));
            for (m, (row, expected)) in rows.enumerate() {
                let bits = |values: &[f32]| {
                    values
                        .iter()
                        .map(|value| value.to_bits())
                        .collect::<Vec<_>>()
                };
                assert_eq!(
                    bits(row),
                    bits(expected),
                    "{:?} {}x{}, row {m} of {}, {:?}, {threads} threads",
                    self.format,
                    self.n,
                    self.k,
                    self.m,
                    kernels.isa()
                );
            }
        }
    }
}

#[test]
fn every_tier_computes_the_specified_bits() {
    let mut sample = Sample(4);
    for format in Format::ALL {
        for m in 1..=17 {
            let k = if format.is_quantized() {
                format.block_elements() * (1 + sample.below(3))
            } else {
                1 + sample.below(70)
            };
            let n = 1 + sample.below(50);
            Case::new(&mut sample, format, n, k, m).check(1 + m % 3);
        }
    }
}

#[test]
fn many_rows_are_cut_into_blocks_with_the_same_bits() {
    let mut sample = Sample(5);
    for format in Format::ALL {
        for m in [33, 63, 64, 65, 70, 129] {
            let k = format.block_elements().max(32);
            let n = 1 + sample.below(40);
            Case::new(&mut sample, format, n, k, m).check(1 + m % 3);
        }
    }
}

#[test]
fn many_strips_are_cut_into_units_with_the_same_bits() {
    let mut sample = Sample(6);
    for format in [Format::Q4_1, Format::Q6K, Format::F16] {
        Case::new(&mut sample, format, 1000, 256, 3).check(3);
    }
}

#[test]
fn a_plan_covers_every_output_once() {
    let bytes = vec![0; tile_bytes(Format::Q8_0, 500, 64)];
    for n in [1, 16, 100, 500] {
        let tiles = Tiles::new(
            Format::Q8_0,
            n,
            64,
            &bytes[..tile_bytes(Format::Q8_0, n, 64)],
        )
        .unwrap();
        for (m, threads) in [(1, 1), (64, 2), (65, 8), (512, 3), (1000, 64)] {
            let plan = Plan::new(&tiles, m, threads);
            let mut covered = vec![0; tiles.strips() * m];
            for (strips, rows) in (0..plan.units()).map(|unit| plan.unit(unit)) {
                let outputs = strips.flat_map(|strip| rows.clone().map(move |row| strip * m + row));
                outputs.for_each(|output| covered[output] += 1);
            }
            assert!(covered.iter().all(|count| *count == 1), "{n} {m} {threads}");
        }
    }
}

#[test]
fn several_products_at_once_equal_each_alone_with_bias_and_sum_after_it() {
    let mut sample = Sample(7);
    for (m, threads) in [(1, 1), (1, 2), (3, 3), (70, 2), (5, 8)] {
        let formats = [Format::Q4_1, Format::Q8_0, Format::F16];
        let shapes = formats.map(|format| (format, 1 + sample.below(90)));
        let cases = shapes.map(|(format, n)| Case::new(&mut sample, format, n, 96, m));
        let pool = Pool::new(threads);
        for kernels in Kernels::available() {
            let mut activations = Activations::new();
            activations.resize(m, 96);
            activations.values_mut().copy_from_slice(&cases[0].values);
            kernels.quantize(&pool, &mut activations);
            let before = vec![0.25; m * 100];
            let bias: Vec<f32> = (0..100).map(|n| n as f32 / 7.0).collect();
            let expected = cases.each_ref().map(|case| {
                let mut out = vec![0.0; m * case.n];
                kernels.matmul(&pool, &activations, [Product::new(case.tiles(), &mut out)]);
                for row in out.chunks_exact_mut(case.n) {
                    kernels.add(&pool, row, &bias[..case.n]);
                }
                let mut sum = before[..m * case.n].to_vec();
                kernels.add(&pool, &mut sum, &out);
                [out, sum]
            });
            for accumulate in [false, true] {
                let mut outs = cases.each_ref().map(|case| before[..m * case.n].to_vec());
                let mut outs_left = outs.iter_mut();
                let products = cases.each_ref().map(|case| Product {
                    tiles: case.tiles(),
                    bias: Some(&bias[..case.n]),
                    out: outs_left.next().unwrap(),
                    accumulate,
                });
                kernels.matmul(&pool, &activations, products);
                let expected = expected
                    .each_ref()
                    .map(|both| both[usize::from(accumulate)].clone());
                assert_eq!(outs, expected, "{:?}, {threads} threads", kernels.isa());
            }
        }
    }
}

#[test]
fn no_rows_are_no_work() {
    let tiles = Tiles::new(Format::F32, 4, 0, &[]).unwrap();
    let mut activations = Activations::new();
    let kernels = Kernels::detect();
    let pool = Pool::new(2);
    kernels.matmul(&pool, &activations, [Product::new(tiles, &mut [])]);
    // An empty sum is zero.
    activations.resize(2, 0);
    let mut out = [1.0; 8];
    kernels.matmul(&pool, &activations, [Product::new(tiles, &mut out)]);
    assert_eq!(out, [0.0; 8]);
}
