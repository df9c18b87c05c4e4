//! The disposable process: it holds the model, schedules requests over it and may die at
//! any time, because everything needed to go on is in the supervisor's ledger.

pub mod backend;
#[cfg(test)]
mod fake;
pub mod pages;
pub mod scheduler;
#[cfg(test)]
mod seeded;
mod sequence;

pub use sequence::{SequenceKey, SequenceStart};
