//! A simulation of the whole of Relight but its sockets: the supervisor's core and the
//! engine's core on one thread, in virtual time, with a faulty pipe, a faulty engine and
//! clients of all kinds. One seed gives one run, always the same.
//!
//! ```text
//!   clients ──> supervisor::Core ──frames──> Wire ──> EngineHost: engine::Core
//!                      ▲                                    │
//!                      └──────────── Wire <──frames─────────┘
//! ```
//!
//! Every run is held against properties. Always, a client receives exactly what an
//! undisturbed engine makes of its request, each byte once, and fails for nobody's sake but
//! its own. And once nothing goes wrong any more, every request ends, the engine is
//! ready again, and nothing is left in the ledger or in the pool of pages.

mod ambient;
mod backend;
mod case;
mod census;
mod client;
mod clock;
mod engine_host;
mod fault;
mod generator;
mod memory;
mod plan;
mod poison;
mod property;
mod quiet;
mod random;
mod shell;
mod trace;
mod vocabulary;
mod wire;
mod world;

pub use case::Catalogue;
pub use census::Census;
use relight_engine::arena::ArenaError;
use relight_gguf::GgufError;
use relight_model::text::TextError;
use relight_protocol::{Fault, LatchCause};
use world::World;

/// Why there is no catalogue of requests to run with.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("the vocabulary's file does not parse")]
    Gguf(#[from] GgufError),
    #[error("the vocabulary cannot be used")]
    Text(#[from] TextError),
    #[error("a case cannot be served")]
    Fault(#[from] Fault),
    #[error("an undisturbed engine failed: {0}")]
    Latched(LatchCause),
    #[error("there is no memory for the recorder")]
    Arena(#[from] ArenaError),
    #[error("a case does not end")]
    Endless,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of everything that happened, in order.
    pub hash: u64,
    /// Properties that did not hold; the run ends at the first.
    pub breaches: Vec<String>,
    /// What came up.
    pub census: Census,
    /// Every line, if it was asked for.
    pub text: Option<String>,
}

/// Runs the world that follows from `seed`.
///
/// # Errors
/// If there is no memory for it.
pub fn run(catalogue: &Catalogue, seed: u64, keeps_text: bool) -> Result<Outcome, SetupError> {
    let mut world = World::new(catalogue, seed, keeps_text)?;
    world.run();
    let census = Census::of(&world.core.snapshot());
    let breaches = world.ambient.breaches;
    let (hash, text) = world.ambient.trace.finish();
    Ok(Outcome {
        hash,
        breaches,
        census,
        text,
    })
}

#[cfg(test)]
mod tests;
