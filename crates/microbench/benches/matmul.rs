//! Matrix products, `FORMAT ROWSxCOLS/M`: weights of (ROWS, COLS) times M rows of activations.
//!
//! Every product reads another copy of the weights, as many as no cache holds, as the layers of
//! a model do; with `hot` behind it the same copy each time, which is the speed of arithmetic
//! alone.

use criterion::{BenchmarkId, Criterion, Throughput};
use relight_kernels::{Activations, Format, Kernels, Pool, Product, Tiles, tile_bytes};
use relight_microbench::{
    AgainstPeak, COLD_BYTES, Products, Roofline, criterion, noise, on_large_pages,
};

/// Rows and columns of weights: small models, and the shapes of a model of 1B.
const SHAPES: [(usize, usize); 3] = [(1536, 576), (2048, 640), (8192, 2048)];
/// Rows of activations: one stream, a few, and prompts.
const ROWS: [usize; 6] = [1, 2, 4, 8, 64, 256];

fn main() {
    let machine = Roofline::measure();
    for (products, is_float) in [(Products::Int8, false), (Products::F32, true)] {
        let mut criterion = criterion(&machine, products);
        for format in Format::ALL {
            let has_floats = matches!(format, Format::F32 | Format::F16 | Format::Bf16);
            if has_floats == is_float {
                for shape in SHAPES {
                    measure(&mut criterion, format, shape, is_float);
                }
            }
        }
        criterion.final_summary();
    }
}

fn measure(
    criterion: &mut Criterion<AgainstPeak>,
    format: Format,
    (rows, cols): (usize, usize),
    is_float: bool,
) {
    if !cols.is_multiple_of(format.block_elements()) {
        return;
    }
    let bytes = tile_bytes(format, rows, cols);
    let mut group = criterion.benchmark_group(format!("{format:?} {rows}x{cols}"));
    for (heat, copies) in [("", COLD_BYTES.div_ceil(bytes)), (" hot", 1)] {
        // Any bytes are codes; scales of zero keep the values finite.
        let weights = on_large_pages(bytes * copies, 0x11_u8);
        let mut copies = weights.chunks_exact(bytes).cycle();
        for m in ROWS {
            let macs = (m * rows * cols) as u64;
            group.throughput(Throughput::ElementsAndBytes {
                elements: if is_float { 2 * macs } else { macs },
                bytes: bytes as u64,
            });
            let mut multiply = multiplication(m, cols);
            let id = BenchmarkId::from_parameter(format!("{m}{heat}"));
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    let copy = copies.next().unwrap_or_default();
                    Tiles::new(format, rows, cols, copy).map(&mut multiply)
                });
            });
        }
    }
    group.finish();
}

/// Multiplies `m` rows of activations with tiles of so many columns.
fn multiplication(m: usize, cols: usize) -> impl FnMut(Tiles<'_>) {
    let (kernels, pool) = (Kernels::detect(), Pool::new(1));
    let mut activations = Activations::new();
    activations.resize(m, cols);
    activations.values_mut().copy_from_slice(&noise(m * cols));
    kernels.quantize(&pool, &mut activations);
    let mut out = Vec::new();
    move |tiles| {
        out.resize(m * tiles.rows(), 0.0);
        kernels.matmul(&pool, &activations, [Product::new(tiles, &mut out)]);
    }
}
