//! Flags of `relight bench`.

use clap::Args;

use super::{EngineArgs, ModelArgs};

/// Measure how fast a model reads and writes here.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Tokens of the prompt; 0 skips that measurement
    #[arg(short = 'p', long, value_name = "TOKENS", default_value_t = 512)]
    pub(crate) n_prompt: u32,
    /// Tokens of the answer; 0 skips that measurement
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 128)]
    pub(crate) n_gen: u32,
    /// Whole answers too, with and without a supervisor around the engine
    #[arg(long)]
    pub(crate) supervised: bool,
    /// Runs per measurement, after one that does not count
    #[arg(short, long, value_name = "COUNT", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
