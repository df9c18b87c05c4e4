//! Speed of matrix products: `cargo run --release -p relight-kernels --example matmul --
//! [threads] [filter] [MiB]`.
//!
//! Every product reads another copy of the weights, as many as exceed the last-level cache, as
//! the layers of a model do. A line gives weights read in GB/s and products in GMAC/s, the best
//! of many short trials, so that other work on the machine disturbs it little. `filter` selects
//! lines that contain it. With fewer MiB of weights than a cache has, it is the speed of
//! arithmetic alone.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a measuring tool for developers: it prints, and reads the clock"
)]

use std::time::Instant;

use relight_kernels::{Activations, Format, Kernels, Pool, Product, Tiles, tile_bytes};

/// Weights that no cache holds.
const COLD_MIB: usize = 96;

/// Measurements per line, of which the best counts.
const TRIALS: usize = 100;

/// Products of a trial: few enough that some trials are not interrupted.
const TRIAL_MACS: usize = 1 << 26;

/// Products beyond which a shape is not measured.
const MACS_MAX: usize = 1 << 30;

/// Rows and columns of weights of small models.
const SHAPES: [(usize, usize); 5] = [
    (1536, 576),
    (576, 1536),
    (2048, 640),
    (640, 2048),
    (16384, 1024),
];

const ROWS: [usize; 8] = [1, 2, 3, 4, 8, 16, 64, 512];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|text| text.parse().ok());
    let pool = Pool::new(threads.unwrap_or(2));
    let filter = arguments.next().unwrap_or_default();
    let cold = arguments.next().and_then(|text| text.parse().ok());
    let cold = cold.unwrap_or(COLD_MIB) << 20;
    for kernels in Kernels::available().into_iter().rev().take(1) {
        for format in Format::ALL {
            for (rows, cols) in SHAPES {
                let name = format!("{format:?} {rows}x{cols}");
                if name.contains(&filter) && cols % format.block_elements() == 0 {
                    measure(&name, (&kernels, &pool), (format, rows, cols), cold);
                }
            }
        }
    }
}

fn measure(
    name: &str,
    (kernels, pool): (&Kernels, &Pool),
    (format, rows, cols): (Format, usize, usize),
    cold: usize,
) {
    let bytes = tile_bytes(format, rows, cols);
    let copies = cold.div_ceil(bytes).max(1);
    // Any bytes are codes; scales of zero keep the values finite.
    let weights: Vec<u8> = vec![0x11; bytes * copies];
    let mut line = format!("{name:20}");
    for m in ROWS {
        let mut activations = Activations::new();
        activations.resize(m, cols);
        for (index, value) in activations.values_mut().iter_mut().enumerate() {
            *value = (index % 17) as f32 - 8.0;
        }
        kernels.quantize(pool, &mut activations);
        let mut out = vec![0.0; m * rows];
        let work = m * rows * cols;
        if work > MACS_MAX {
            continue;
        }
        let repetitions = (TRIAL_MACS / work).max(1);
        let mut best = f64::INFINITY;
        let mut next = 0;
        for _ in 0..TRIALS {
            let start = Instant::now();
            for _ in 0..repetitions {
                let copy = &weights[next..next + bytes];
                next = (next + bytes) % weights.len();
                let Ok(tiles) = Tiles::new(format, rows, cols, copy) else {
                    return;
                };
                kernels.matmul(pool, &activations, [Product::new(tiles, &mut out)]);
            }
            best = best.min(start.elapsed().as_secs_f64() / repetitions as f64);
        }
        let (speed, macs) = (bytes as f64 / best / 1e9, work as f64 / best / 1e9);
        if m < 16 {
            line += &format!("  m{m} {speed:5.1} GB/s {macs:5.1}");
        } else {
            line += &format!("  m{m} {macs:5.1}");
        }
    }
    println!("{line}");
}
