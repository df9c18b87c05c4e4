//! Checks, test set-up and benchmarks.
fn main() {}
