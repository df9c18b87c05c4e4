//! What is done to rows of activations between the products, `OPERATION/ROWS` of the width of
//! a model of 1B. They lie in a cache, as they do between two products; bytes are those read and
//! written.

use criterion::{BenchmarkId, Criterion, Throughput};
use relight_kernels::{
    Activations, Format, Kernels, Pool, RopeKind, RopeTable, repack, tile_bytes,
};
use relight_microbench::{AgainstPeak, Products, Roofline, criterion, noise};

const COLS: usize = 2048;
const INNER_COLS: usize = 8192;
const HEAD_SIZE: usize = 64;
const ROWS: [usize; 2] = [1, 64];

fn main() {
    let mut criterion = criterion(&Roofline::measure(), Products::F32);
    for rows in ROWS {
        norm_and_add(&mut criterion, rows);
        inner(&mut criterion, rows);
        rope(&mut criterion, rows);
    }
    repacking(&mut criterion);
    criterion.final_summary();
}

/// One benchmark that reads and writes `bytes`.
fn measure(
    criterion: &mut Criterion<AgainstPeak>,
    (name, rows): (&str, usize),
    bytes: usize,
    mut work: impl FnMut(),
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(BenchmarkId::from_parameter(rows), |bencher| {
        bencher.iter(&mut work);
    });
    group.finish();
}

fn norm_and_add(criterion: &mut Criterion<AgainstPeak>, rows: usize) {
    let (kernels, pool) = (Kernels::detect(), Pool::new(1));
    let (input, weight) = (noise(rows * COLS), noise(COLS));
    let mut out = vec![0.0; rows * COLS];
    let bytes = rows * COLS * size_of::<f32>();
    measure(criterion, ("rms_norm", rows), 2 * bytes, || {
        kernels.rms_norm(&pool, &input, &weight, 1e-5, &mut out);
    });
    measure(criterion, ("add", rows), 3 * bytes, || {
        kernels.add(&pool, &mut out, &input);
        // Sums that are added to for ever would end at infinity.
        kernels.scale(&mut out, 0.5);
    });
    let mut activations = Activations::new();
    activations.resize(rows, COLS);
    activations.values_mut().copy_from_slice(&input);
    measure(criterion, ("quantize", rows), bytes + bytes / 2, || {
        kernels.quantize(&pool, &mut activations);
    });
}

fn inner(criterion: &mut Criterion<AgainstPeak>, rows: usize) {
    let (kernels, pool) = (Kernels::detect(), Pool::new(1));
    let mut gate = noise(rows * INNER_COLS);
    let up = vec![1.0; rows * INNER_COLS];
    let bytes = 3 * rows * INNER_COLS * size_of::<f32>();
    measure(criterion, ("silu_mul", rows), bytes, || {
        kernels.silu_mul(&pool, &mut gate, &up);
    });
    measure(criterion, ("gelu_mul", rows), bytes, || {
        kernels.gelu_mul(&pool, &mut gate, &up);
    });
}

fn rope(criterion: &mut Criterion<AgainstPeak>, rows: usize) {
    let (kernels, pool) = (Kernels::detect(), Pool::new(1));
    let mut table = RopeTable::new(HEAD_SIZE, 500_000.0, 1.0, None);
    let positions = 0..u32::try_from(rows).unwrap_or_default();
    let bytes = 2 * rows * COLS * size_of::<f32>();
    let mut heads = noise(rows * COLS);
    for (name, kind) in [
        ("rope neighbours", RopeKind::Interleaved),
        ("rope halves", RopeKind::Neox),
    ] {
        table.prepare(positions.clone());
        measure(criterion, (name, rows), bytes, || {
            kernels.rope(&pool, &mut heads, HEAD_SIZE, &table, kind);
        });
    }
}

/// From the file's order to tiles, once for each weight when a model is loaded.
fn repacking(criterion: &mut Criterion<AgainstPeak>) {
    for format in Format::ALL {
        let bytes = tile_bytes(format, COLS, COLS);
        let source = vec![0x11; format.row_bytes(COLS) * COLS];
        let mut tiles = vec![0; bytes];
        let name = format!("repack {format:?}");
        measure(criterion, (&name, COLS), source.len() + bytes, || {
            repack(format, COLS, COLS, &source, &mut tiles);
        });
    }
}
