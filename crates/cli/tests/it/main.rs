//! The real binary, from the outside.

#[cfg(test)]
mod models;
