//! The disposable process: it holds the model, schedules requests over it and may die at
//! any time, because everything needed to go on is in the supervisor's ledger.
//!
//! ```text
//!   run        threads and the socket
//!   load       model file -> weights arena, pages, card
//!   prepare    request -> token ids, private state of its choices
//!   core       inputs -> events; owns all of the following
//!     scheduler, sequence, pages     what the next step computes, and where
//!     drafter, row_times             what a sequence may say next, and whether trying it pays
//!     backend, cpu                   the forward pass
//!     completion, containment        one request's private work
//!   recording, report, cost        what is left for the supervisor: who was at what, what
//!                                  panicked where, how long it should take
//! ```

pub mod arena;
pub mod backend;
mod completion;
mod containment;
pub mod core;
pub mod cost;
pub mod cpu;
mod drafter;
mod error;
#[cfg(test)]
mod fake;
mod injected;
pub mod language;
pub mod load;
pub mod pace;
pub mod pages;
pub mod prepare;
mod recording;
mod report;
pub mod row_times;
mod run;
pub mod scheduler;
#[cfg(test)]
mod seeded;
mod sequence;
#[cfg(test)]
mod test_vocabulary;

pub use containment::PrivateFault;
pub use error::EngineError;
pub use recording::LaneUse;
pub use run::{run, run_on};
pub use sequence::{SequenceKey, SequenceStart};
