//! Attention of one layer over paged state, `SHAPE/WORK TOKENS`.
//!
//! `decode` is one query row that sees so many tokens, `verify` four rows of one sequence,
//! `many` one row of each of 32 sequences: from pages that no cache holds, elements that of
//! scores and sums, bytes those of keys and values. `prefill` is a whole prompt in chunks, as
//! the engine computes it; products with keys that a query does not see are not counted.
//! Shapes without a type are kept as f16.

#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "sizes are small, and a wrong index ends a benchmark"
)]

use criterion::{BenchmarkId, Criterion, Throughput};
use relight_kernels::{AttentionRow, AttentionShape, Kernels, KvLayout, KvType, PAGE_TOKENS, Pool};
use relight_microbench::{
    AgainstPeak, COLD_BYTES, Products, Roofline, criterion, noise, on_large_pages,
};

/// Layers of a page: neighbouring layers' state lies between that of one.
const LAYERS: usize = 30;
/// Rows that the engine computes at once.
const CHUNK_ROWS: usize = 512;
/// Query heads, key/value heads, elements of a head.
type Heads = (usize, usize, usize);
const SHAPES: [(&str, Heads, Option<u32>); 5] = [
    ("smollm2", (9, 3, 64), None),
    ("gemma", (4, 1, 256), None),
    ("gemma window", (4, 1, 256), Some(512)),
    ("1b", (32, 8, 64), None),
    ("8b", (32, 8, 128), None),
];
const WORKS: [(&str, usize); 7] = [
    ("decode", 500),
    ("decode", 2000),
    ("decode", 8000),
    ("verify", 2000),
    ("many", 500),
    ("prefill", 512),
    ("prefill", 2000),
];

fn main() {
    let mut criterion = criterion(&Roofline::measure(), Products::F32);
    for (name, heads, window) in SHAPES {
        for kv_type in KvType::ALL {
            let scene = Scene::new(kv_type, heads, window);
            let name = match kv_type {
                KvType::F16 => name.to_owned(),
                KvType::Bf16 | KvType::Q8_0 => format!("{name} {}", kv_type.name()),
            };
            for (work, tokens) in WORKS {
                measure(&mut criterion, &name, &scene, (work, tokens));
            }
        }
    }
    criterion.final_summary();
}

/// A model's pages, filled with finite state, and how they are shared out.
struct Scene {
    layout: KvLayout,
    shape: AttentionShape,
    kv: Vec<u8>,
    pages: usize,
    cols: usize,
}

/// Consecutive rows of some sequences.
struct Batch {
    tables: Vec<Vec<u32>>,
    rows: Vec<AttentionRow>,
    queries: Vec<f32>,
}

impl Scene {
    fn new(kv_type: KvType, (heads, kv_heads, size): Heads, window: Option<u32>) -> Self {
        let layout = KvLayout::new(kv_type, &[(kv_heads, size); LAYERS]);
        let pages = (8192 / PAGE_TOKENS).max(COLD_BYTES.div_ceil(layout.page_bytes()));
        // Floats of 16 bits of both signs: f16 from 2^-7 to 2, and finite scales.
        let mut kv = on_large_pages(pages * layout.page_bytes(), 0_u8);
        for (index, element) in kv.as_chunks_mut().0.iter_mut().enumerate() {
            let noise = (index as u32).wrapping_mul(0x9e37_79b9) >> 16;
            *element = ((noise as u16 & 0x9fff) | 0x2000).to_le_bytes();
        }
        let shape = AttentionShape {
            heads,
            scale: 1.0 / (size as f32).sqrt(),
            window,
            softcap: None,
        };
        Self {
            layout,
            shape,
            kv,
            pages,
            cols: heads * size,
        }
    }

    /// Rows from position `first` on of so many sequences, each on pages of its own, which lie
    /// far from each other.
    fn batch(&self, sequences: usize, rows: usize, first: usize) -> Batch {
        let table = |sequence: usize| {
            let blocks = 0..(first + rows).div_ceil(PAGE_TOKENS);
            let pages = blocks.map(|block| (sequence * 5 + block * 37) % self.pages);
            pages.map(|page| page as u32).collect()
        };
        let rows_of = |sequence: usize| {
            (first..first + rows).map(move |position| AttentionRow {
                position: position as u32,
                sequence: sequence as u32,
            })
        };
        Batch {
            tables: (0..sequences).map(table).collect(),
            rows: (0..sequences).flat_map(rows_of).collect(),
            queries: noise(sequences * rows * self.cols),
        }
    }

    /// The batches of a piece of work.
    fn batches(&self, work: &str, tokens: usize) -> Vec<Batch> {
        match work {
            "decode" => vec![self.batch(1, 1, tokens - 1)],
            "verify" => vec![self.batch(1, 4, tokens - 4)],
            "many" => vec![self.batch(32, 1, tokens - 1)],
            _ => {
                let starts = (0..tokens).step_by(CHUNK_ROWS);
                let chunk = |start| self.batch(1, CHUNK_ROWS.min(tokens - start), start);
                starts.map(chunk).collect()
            }
        }
    }

    /// Operations on f32, and bytes of keys and values.
    fn amount(&self, batch: &Batch) -> (u64, u64) {
        let window = self.shape.window.map_or(usize::MAX, |size| size as usize);
        let visible = |row: &AttentionRow| window.min(row.position as usize + 1);
        let pairs: usize = batch.rows.iter().map(visible).sum();
        let longest = batch.rows.iter().map(visible).max().unwrap_or_default();
        let token_bytes = self.layout.page_bytes() / PAGE_TOKENS / LAYERS;
        let state = batch.tables.len() * longest * token_bytes;
        ((4 * pairs * self.cols) as u64, state as u64)
    }
}

fn measure(
    criterion: &mut Criterion<AgainstPeak>,
    name: &str,
    scene: &Scene,
    (work, tokens): (&str, usize),
) {
    let (kernels, pool) = (Kernels::detect(), Pool::new(1));
    let batches = scene.batches(work, tokens);
    let amounts = batches.iter().map(|batch| scene.amount(batch));
    let (elements, bytes) = amounts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let rows = batches.iter().map(|batch| batch.queries.len()).max();
    let mut out = vec![0.0; rows.unwrap_or_default()];
    let mut layers = (0..LAYERS).cycle();
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::ElementsAndBytes { elements, bytes });
    group.bench_function(BenchmarkId::new(work, tokens), |bencher| {
        bencher.iter(|| {
            let layer = layers.next().unwrap_or_default();
            for batch in &batches {
                let tables: Vec<&[u32]> = batch.tables.iter().map(Vec::as_slice).collect();
                kernels.attention(
                    &pool,
                    (&scene.kv, &scene.layout, layer),
                    &scene.shape,
                    (&batch.queries, &batch.rows, &tables),
                    &mut out[..batch.queries.len()],
                );
            }
        });
    });
    group.finish();
}
