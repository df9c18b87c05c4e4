use proptest::prelude::*;

use super::*;
use crate::Isa;
use crate::ops::kv::PAGE_TOKENS;
use crate::ops::tests::{Function, apply, bits, noise};
use crate::ops::{KvRow, KvType};
use crate::simd::LANES;

fn exp(x: f32) -> f32 {
    apply(Function::Exp, x)
}

/// A batch over one layer: every sequence's keys and values up to its length are in pages.
struct Scene {
    layout: KvLayout,
    shape: AttentionShape,
    kv: Vec<u8>,
    tables: Vec<Vec<u32>>,
    kv_heads: usize,
    size: usize,
}

impl Scene {
    /// Pages start as NaN, so that a read of an unwritten slot shows.
    fn new(
        kv_type: KvType,
        lengths: &[usize],
        (kv_heads, group): (usize, usize),
        size: usize,
        window: Option<u32>,
    ) -> Self {
        let layout = KvLayout::new(kv_type, &[(1, 16), (kv_heads, size)]);
        let pages: usize = lengths
            .iter()
            .map(|length| length.div_ceil(PAGE_TOKENS))
            .sum();
        let mut kv = vec![0xff; (pages + 1) * layout.page_bytes()];
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

    /// A page, and where the keys of a head of the layer begin in it, or its values.
    fn side(&self, sequence: u32, position: usize, (kv_head, is_key): (usize, bool)) -> &[u8] {
        let page = self.tables[sequence as usize][position / PAGE_TOKENS] as usize;
        let layer = self.layout.layers[1];
        let start = if is_key {
            layer.keys(kv_head)
        } else {
            layer.values(kv_head)
        };
        &self.kv[page * self.layout.page_bytes() + start..][..layer.head_bytes()]
    }

    /// An element as it is kept, without its scale.
    fn element(
        &self,
        row: AttentionRow,
        position: usize,
        (kv_head, is_key): (usize, bool),
        d: usize,
    ) -> f32 {
        let side = self.side(row.sequence, position, (kv_head, is_key));
        let slot = position % PAGE_TOKENS;
        let index = if is_key {
            d * PAGE_TOKENS + slot
        } else {
            slot * self.size + d
        };
        let bits = || u16::from_le_bytes([side[2 * index], side[2 * index + 1]]);
        match self.layout.kv_type() {
            KvType::F16 => crate::f16_to_f32(bits()),
            KvType::Bf16 => crate::bf16_to_f32(bits()),
            KvType::Q8_0 => f32::from(side[index].cast_signed()),
        }
    }

    /// The scale of a token's elements, if the type has one.
    fn scale(&self, row: AttentionRow, position: usize, side: (usize, bool)) -> Option<f32> {
        let side = self.side(row.sequence, position, side);
        let scales = &side[self.layout.layers[1].element_bytes()..];
        let scale = scales.as_chunks().0.get(position % PAGE_TOKENS)?;
        Some(f32::from_le_bytes(*scale))
    }

    fn value(&self, row: AttentionRow, position: usize, side: (usize, bool), d: usize) -> f64 {
        let scale = self.scale(row, position, side).unwrap_or(1.0);
        f64::from(self.element(row, position, side, d)) * f64::from(scale)
    }

    fn kv_head(&self, head: usize) -> usize {
        head / (self.shape.heads / self.kv_heads)
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
                    let side = (self.kv_head(head), false);
                    let weight = self.scale(row, at, side).map_or(weight, |d| weight * d);
                    let values = (0..self.size).map(|d| self.element(row, at, side, d));
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
        let side = (self.kv_head(head), true);
        let mut score = 0.0_f32;
        for (d, query) in query.iter().enumerate() {
            score = query.mul_add(self.element(row, at, side, d), score);
        }
        if let Some(scale) = self.scale(row, at, side) {
            score *= scale;
        }
        match self.shape.softcap {
            Some(cap) => apply(Function::Tanh, score / cap) * cap,
            None => score,
        }
    }

    /// The textbook formula in f64.
    fn exact(&self, row: AttentionRow) -> Vec<f64> {
        let cols = self.shape.heads * self.size;
        let query = noise(u64::from(row.position * 31 + row.sequence) + 99, cols);
        let mut out = vec![0.0; cols];
        for head in 0..self.shape.heads {
            let kv_head = self.kv_head(head);
            let visible = self.shape.visible(row.position as usize);
            let score = |position: usize| -> f64 {
                let products = (0..self.size).map(|d| {
                    f64::from(query[head * self.size + d])
                        * self.value(row, position, (kv_head, true), d)
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
                for d in 0..self.size {
                    let value = self.value(row, position, (kv_head, false), d);
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
        for kv_type in KvType::ALL {
            let mut scene = Scene::new(kv_type, &[length], (2, 3), 32, window);
            scene.shape.softcap = softcap;
            let row = AttentionRow {
                position: length as u32 - 1,
                sequence: 0,
            };
            let out = scene.attend(&Kernels::detect(), 1, &[row]);
            for (found, exact) in out.iter().zip(scene.exact(row)) {
                assert!(
                    (f64::from(*found) - exact).abs() < 2e-5,
                    "{found} is not {exact}, length {length}, {kv_type:?}"
                );
            }
        }
    }
}

/// The last `tail` positions of every sequence.
fn last_rows(lengths: &[usize], tail: usize) -> Vec<AttentionRow> {
    let rows = lengths.iter().enumerate().flat_map(|(sequence, length)| {
        let positions = length.saturating_sub(tail)..*length;
        positions.map(move |position| AttentionRow {
            position: position as u32,
            sequence: sequence as u32,
        })
    });
    rows.collect()
}

/// Every row of batches that are cut up in every way, on any tier and team, against the
/// formula: few and many heads and rows, groups of odd sizes, windows, one segment and more.
#[test]
fn attention_has_the_bits_of_its_formula() {
    for (lengths, tail, heads, size, window) in [
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
        for kv_type in KvType::ALL {
            let mut scene = Scene::new(kv_type, &lengths, heads, size, window);
            scene.shape.softcap = (size % 48 == 0).then_some(5.0);
            check_formula(&scene, &last_rows(&lengths, tail));
        }
    }
}

fn check_formula(scene: &Scene, rows: &[AttentionRow]) {
    let expected = rows.iter().flat_map(|row| scene.formula(*row));
    let expected = bits(&expected.collect::<Vec<f32>>());
    for kernels in Kernels::available() {
        for threads in 1..=3 {
            let found = bits(&scene.attend(&kernels, threads, rows));
            assert!(
                found == expected,
                "{} rows {:?} {:?} {:?} {threads}",
                rows.len(),
                scene.shape,
                scene.layout.kv_type(),
                kernels.isa()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(36))]

    /// Every row alone on one scalar thread, against any batch on any tier and team.
    #[test]
    fn attention_of_a_row_does_not_depend_on_its_batch(
        kv_type in proptest::sample::select(KvType::ALL.as_slice()),
        lengths in proptest::collection::vec(1_usize..260, 1..4),
        heads in (1_usize..3, 1_usize..8),
        window in proptest::option::of(1_u32..150),
        tail in 1_usize..70,
    ) {
        let scene = Scene::new(kv_type, &lengths, heads, 16, window);
        let rows = last_rows(&lengths, tail);
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
    for kv_type in KvType::ALL {
        let mut scene = Scene::new(kv_type, &[50], (2, 2), 32, None);
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
}

/// A key that is not finite would otherwise get a weight of e^-87 and be gone.
#[test]
fn a_key_or_value_that_is_not_finite_makes_every_query_nan_that_sees_it() {
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (kv_type, bad) in KvType::ALL
        .into_iter()
        .flat_map(|kv_type| bad.map(|bad| (kv_type, bad)))
    {
        for (is_key, rows) in [(true, 1), (true, 9), (false, 1), (false, 9)] {
            let mut scene = Scene::new(kv_type, &[1100], (2, 2), 16, None);
            let row = KvRow {
                page: scene.tables[0][1],
                slot: 6,
            };
            let good = noise(5, 32);
            let mut broken = good.clone();
            broken[20] = bad;
            let state = if is_key {
                (&broken, &good)
            } else {
                (&good, &broken)
            };
            let pages = (scene.kv.as_mut_slice(), &scene.layout, 1);
            Kernels::detect().kv_write(&Pool::new(1), pages, &[row], (state.0, state.1));
            let row = |position| AttentionRow {
                position,
                sequence: 0,
            };
            let sees: Vec<_> = (1100 - rows..1100).map(row).collect();
            // Heads 2 and 3 have the broken key/value head.
            let out = scene.attend(&Kernels::detect(), 1, &sees);
            for heads in out.chunks(64) {
                assert!(heads[..32].iter().all(|out| out.is_finite()));
                let broken = &heads[32..];
                if is_key {
                    assert!(
                        broken.iter().all(|out| out.is_nan()),
                        "{kv_type:?} {bad} {rows}"
                    );
                } else {
                    assert!(!(broken[4].is_finite() && broken[20].is_finite()));
                }
            }
            let out = scene.attend(&Kernels::detect(), 1, &[row(69)]);
            assert!(out.iter().all(|out| out.is_finite()));
        }
    }
}
