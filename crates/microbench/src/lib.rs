//! Benchmarks of single kernels, on one thread: `cargo bench -p relight-microbench`.
//!
//! Each line gives the time, and what was read or multiplied in it beside the most that one
//! thread of this machine can read or multiply ([`Roofline`], measured before the first line):
//! a kernel at 90 % of either has no more to give. `cargo bench -p relight-microbench --bench
//! matmul -- 'Q4K.*/1$'` measures only what matches.

mod against_peak;
mod roofline;

pub use against_peak::{AgainstPeak, Products};
pub use roofline::{Roofline, on_large_pages};

use std::time::Duration;

use criterion::Criterion;

/// Bytes that no cache holds: kernels of a step find their weights in memory.
pub const COLD_BYTES: usize = 96 << 20;

/// Short measurements, because there are many, against the limits of `machine`.
#[must_use]
pub fn criterion(machine: &Roofline, products: Products) -> Criterion<AgainstPeak> {
    Criterion::default()
        .with_measurement(AgainstPeak::new(machine, products))
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args()
}

/// Numbers between -1 and 1 that follow from their places.
#[must_use]
pub fn noise(count: usize) -> Vec<f32> {
    let numbers = (0..count).map(|index| (index % 23) as f32 / 11.0 - 1.0);
    numbers.collect()
}
