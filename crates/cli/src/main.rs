//! The `relight` command.
fn main() {}
