//! Speed of attention over paged state: `cargo run --release -p relight-kernels --example
//! attention -- [threads] [filter]`.
//!
//! `decode` lines are one query row that sees a whole context, read from pages that no cache
//! holds: microseconds a layer, and key/value state read in GB/s. `prefill` lines are all rows
//! of a prompt in chunks, as the engine computes it: GFLOP/s, products of hidden pairs not
//! counted. `many` is one row each of 32 sequences. The best of many trials; `filter` selects
//! lines that contain it.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "a measuring tool for developers: it prints, reads the clock, and its sizes are small"
)]

use std::time::{Duration, Instant};

use relight_kernels::{AttentionRow, AttentionShape, Kernels, KvLayout, PAGE_TOKENS, Pool};

/// State that no cache holds.
const COLD_BYTES: usize = 128 << 20;

/// Layers of a page: neighbouring layers' state lies between that of one.
const LAYERS: usize = 30;

/// Rows that the engine computes at once.
const CHUNK_ROWS: usize = 512;

/// How long a line is measured.
const PATIENCE: Duration = Duration::from_millis(400);

/// (name, query heads, key/value heads, elements of a head, window)
const SHAPES: [(&str, usize, usize, usize, Option<u32>); 5] = [
    ("smollm2", 9, 3, 64, None),
    ("gemma", 4, 1, 256, None),
    ("gemma-512", 4, 1, 256, Some(512)),
    ("1b", 32, 8, 64, None),
    ("8b", 32, 8, 128, None),
];

/// A model's pages, filled with finite state, and how they are shared out.
struct Scene {
    layout: KvLayout,
    shape: AttentionShape,
    kv: Vec<u16>,
    pages: usize,
    cols: usize,
}

impl Scene {
    fn new(heads: usize, kv_heads: usize, size: usize, window: Option<u32>) -> Self {
        let layout = KvLayout::new(&[(kv_heads, size); LAYERS]);
        let pages = (8192 / PAGE_TOKENS).max(COLD_BYTES.div_ceil(layout.page_bytes()));
        // Half floats from 2^-8 to 2 of both signs.
        let kv = (0..pages * layout.page_elements()).map(|index| {
            let noise = (index as u32).wrapping_mul(0x9e37_79b9) >> 16;
            (noise as u16 & 0x9fff) | 0x2000
        });
        let kv = kv.collect();
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

    /// Pages of a sequence, far from each other and different for each `start`.
    fn table(&self, start: usize, tokens: usize) -> Vec<u32> {
        let pages = (0..tokens.div_ceil(PAGE_TOKENS))
            .map(|block| ((start + block * 37) % self.pages) as u32);
        pages.collect()
    }

    fn visible(&self, position: usize) -> usize {
        let window = self
            .shape
            .window
            .map_or(usize::MAX, |window| window as usize);
        window.min(position + 1)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|text| text.parse().ok());
    let pool = Pool::new(threads.unwrap_or(2));
    let filter = arguments.next().unwrap_or_default();
    let kernels = Kernels::detect();
    for (name, heads, kv_heads, size, window) in SHAPES {
        let works = [
            ("decode", 500),
            ("decode", 2000),
            ("decode", 8000),
            ("many", 500),
            ("verify", 2000),
            ("prefill", 512),
            ("prefill", 2000),
        ];
        let works = works.map(|(work, tokens)| (format!("{work} {name} {tokens}"), work, tokens));
        if works.iter().all(|(line, ..)| !line.contains(&filter)) {
            continue;
        }
        let scene = Scene::new(heads, kv_heads, size, window);
        for (line, work, tokens) in works {
            if line.contains(&filter) {
                let result = measure(&scene, (&kernels, &pool), work, tokens);
                println!("{line:24} {result}");
            }
        }
    }
}

/// Batches of one trial: sequences, and rows of each with the position of the first.
fn batches(work: &str, tokens: usize) -> Vec<(usize, usize, usize)> {
    match work {
        "decode" => vec![(1, 1, tokens - 1)],
        "many" => vec![(32, 1, tokens - 1)],
        "verify" => vec![(1, 4, tokens - 4)],
        _ => {
            let starts = (0..tokens).step_by(CHUNK_ROWS);
            starts
                .map(|start| (1, CHUNK_ROWS.min(tokens - start), start))
                .collect()
        }
    }
}

fn measure(scene: &Scene, (kernels, pool): (&Kernels, &Pool), work: &str, tokens: usize) -> String {
    let batches = batches(work, tokens);
    let (mut pairs, mut state) = (0, 0);
    for (sequences, rows, first) in &batches {
        let seen = (*first..first + rows).map(|position| scene.visible(position));
        pairs += sequences * seen.sum::<usize>();
        state += sequences * scene.visible(first + rows - 1);
    }
    let head_size = scene.cols / scene.shape.heads;
    let token_bytes = scene.layout.page_bytes() / PAGE_TOKENS / LAYERS;
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    let mut trial = 0;
    while trial < 3 || begin.elapsed() < PATIENCE {
        let mut seconds = 0.0;
        for (sequences, rows, first) in &batches {
            seconds += attend(scene, (kernels, pool), (*sequences, *rows, *first), trial);
        }
        best = best.min(seconds);
        trial += 1;
    }
    format!(
        "{:9.1} us {:6.1} GB/s {:6.1} GFLOP/s",
        best * 1e6,
        (state * token_bytes) as f64 / best / 1e9,
        (4 * pairs * scene.cols) as f64 / best / 1e9,
    ) + &format!("  (head {head_size})")
}

/// Seconds of one batch in one layer; the layer and pages are others in each trial.
fn attend(
    scene: &Scene,
    (kernels, pool): (&Kernels, &Pool),
    (sequences, rows, first): (usize, usize, usize),
    trial: usize,
) -> f64 {
    let layer = trial % LAYERS;
    let start = trial / LAYERS * 11;
    let tables: Vec<Vec<u32>> = (0..sequences)
        .map(|sequence| scene.table(start + sequence * 5, first + rows))
        .collect();
    let tables: Vec<&[u32]> = tables.iter().map(Vec::as_slice).collect();
    let batch = (0..sequences).flat_map(|sequence| {
        (first..first + rows).map(move |position| AttentionRow {
            position: position as u32,
            sequence: sequence as u32,
        })
    });
    let batch: Vec<AttentionRow> = batch.collect();
    let queries: Vec<f32> = (0..batch.len() * scene.cols)
        .map(|index| (index % 23) as f32 / 11.0 - 1.0)
        .collect();
    let mut out = vec![0.0; queries.len()];
    let begin = Instant::now();
    kernels.attention(
        pool,
        (&scene.kv, &scene.layout, layer),
        &scene.shape,
        (&queries, &batch, &tables),
        &mut out,
    );
    begin.elapsed().as_secs_f64()
}
