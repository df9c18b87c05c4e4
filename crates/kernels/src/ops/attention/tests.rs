use proptest::prelude::*;

use super::*;
use crate::Isa;
use crate::ops::KvRow;
use crate::ops::kv::PAGE_TOKENS;
use crate::ops::tests::{Function, apply, bits, noise};
use crate::simd::LANES;

fn exp(x: f32) -> f32 {
    apply(Function::Exp, x)
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

    /// The formula that the module `attention` opens with, one operation after the other.
    fn formula(&self, row: AttentionRow) -> Vec<f32> {
        let cols = self.shape.heads * self.size;
        let query = noise(u64::from(row.position * 31 + row.sequence) + 99, cols);
        let heads = query.chunks(self.size).enumerate();
        let out = heads.map(|(head, query)| self.formula_of_head(row, head, query));
        out.collect::<Vec<_>>().concat()
    }

    fn formula_of_head(&self, row: AttentionRow, head: usize, query: &[f32]) -> Vec<f32> {
        let query: Vec<f32> = query.iter().map(|q| q * self.shape.scale).collect();
        let visible = self.shape.visible(row.position as usize);
        let (mut total, mut out) = ((-1e30, 0.0), vec![0.0; self.size]);
        for segment in visible.start / 1024..visible.end.div_ceil(1024) {
            let (mut max, mut sum, mut sums) = (-1e30_f32, 0.0_f32, vec![0.0_f32; self.size]);
            for block in segment * 16..(segment + 1) * 16 {
                let seen = visible.start.max(block * 64)..visible.end.min(block * 64 + 64);
                if seen.is_empty() {
                    continue;
                }
                let scores = seen.clone().map(|at| self.score(row, head, &query, at));
                let scores: Vec<f32> = scores.collect();
                let new = scores.iter().copied().fold(max, f32::max);
                let mut lanes = [0.0_f32; LANES];
                let scale = exp(max - new);
                sums.iter_mut().for_each(|sum| *sum *= scale);
                for (at, score) in seen.zip(scores) {
                    let weight = exp(score - new);
                    lanes[at % LANES] += weight;
                    let values = (0..self.size).map(|d| self.values_of(row, head, at, d));
                    let sums = sums.iter_mut().zip(values);
                    sums.for_each(|(sum, value)| *sum = weight.mul_add(value, *sum));
                }
                for width in [8, 4, 2, 1] {
                    (0..width).for_each(|lane| lanes[lane] += lanes[lane + width]);
                }
                (max, sum) = (new, sum * scale + lanes[0]);
            }
            if total.1 == 0.0 {
                (total, out) = ((max, sum), sums);
            } else {
                let new = max.max(total.0);
                let (old, own) = (exp(total.0 - new), exp(max - new));
                total = (new, total.1 * old + sum * own);
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = *out * old + sum * own;
                }
            }
        }
        out.iter().map(|out| out / total.1).collect()
    }

    fn score(&self, row: AttentionRow, head: usize, query: &[f32], at: usize) -> f32 {
        let kv_head = head / (self.shape.heads / self.kv_heads);
        let first = self.layout.layers[1].keys(kv_head) + at % PAGE_TOKENS;
        let mut score = 0.0_f32;
        for (d, query) in query.iter().enumerate() {
            let key = self.value(row.sequence, at, first + d * PAGE_TOKENS) as f32;
            score = query.mul_add(key, score);
        }
        match self.shape.softcap {
            Some(cap) => apply(Function::Tanh, score / cap) * cap,
            None => score,
        }
    }

    fn values_of(&self, row: AttentionRow, head: usize, at: usize, d: usize) -> f32 {
        let kv_head = head / (self.shape.heads / self.kv_heads);
        let slot = at % PAGE_TOKENS * self.size;
        let first = self.layout.layers[1].values(kv_head) + slot;
        self.value(row.sequence, at, first + d) as f32
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

/// Every row of batches that are cut up in every way, on any tier and team, against the
/// formula: few and many heads and rows, groups of odd sizes, windows, one segment and more.
#[test]
fn attention_has_the_bits_of_its_formula() {
    for (lengths, tail, (kv_heads, group), size, window) in [
        (vec![1], 1, (1, 1), 16, None),
        (vec![2100], 1, (3, 3), 32, None),
        (vec![2100, 30], 3, (1, 4), 48, None),
        (vec![1100], 70, (1, 4), 16, Some(100)),
        (vec![2060], 17, (2, 2), 16, Some(1500)),
        (vec![1030, 5, 1500], 2, (1, 7), 32, None),
        (vec![150], 150, (1, 3), 64, None),
        (vec![900], 1, (1, 4), 64, None),
        (vec![1700], 1, (3, 2), 96, Some(1200)),
        (vec![90, 70], 33, (2, 14), 80, Some(40)),
    ] {
        let mut scene = Scene::new(&lengths, kv_heads, group, size, window);
        scene.shape.softcap = (size % 48 == 0).then_some(5.0);
        let rows = lengths.iter().enumerate().flat_map(|(sequence, length)| {
            let positions = length.saturating_sub(tail)..*length;
            positions.map(move |position| AttentionRow {
                position: position as u32,
                sequence: sequence as u32,
            })
        });
        let rows: Vec<AttentionRow> = rows.collect();
        let expected = rows.iter().flat_map(|row| scene.formula(*row));
        let expected = bits(&expected.collect::<Vec<f32>>());
        for kernels in Kernels::available() {
            for threads in 1..=3 {
                let found = bits(&scene.attend(&kernels, threads, &rows));
                assert!(
                    found == expected,
                    "{lengths:?} {tail} {size} {:?} {threads}",
                    kernels.isa()
                );
            }
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
