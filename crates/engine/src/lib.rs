//! The disposable process: it holds the model, schedules requests over it and may die at
//! any time, because everything needed to go on is in the supervisor's ledger.

pub mod pages;
#[cfg(test)]
mod seeded;
