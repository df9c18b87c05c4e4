//! The command line: names and meanings of llama-server's flags as they are, vLLM's long
//! names as aliases. Parsing resolves nothing; see `commands`.

mod bench;
pub(crate) mod engine;
#[cfg(feature = "fault-injection")]
mod inject;
pub(crate) mod run;
mod running;
pub(crate) mod serve;
mod spelling;
mod stored;

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::bench::BenchArgs;
pub(crate) use self::engine::{EngineArgs, FolderArgs, ModelArgs};
#[cfg(feature = "fault-injection")]
pub(crate) use self::inject::InjectArgs;
pub(crate) use self::run::{RunArgs, SamplingArgs};
pub(crate) use self::running::{FaultsArgs, QuarantineAction, QuarantineArgs, ServerArgs};
pub(crate) use self::serve::{ListenArgs, LogArgs, LogFormat, LogLevel, ServeArgs};
pub(crate) use self::stored::{InspectArgs, ListArgs, PullArgs, RemoveArgs, ShowArgs};
use crate::output::Output;

/// An LLM server that relights its engine in flight.
#[derive(Debug, Parser)]
#[command(name = "relight", version, max_term_width = 100)]
#[command(after_help = "\
Without a command, `serve` is meant: `relight`, `relight -m model.gguf` and
`relight model.gguf` start a server.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How results are written.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write results as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Write nothing but results and errors
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl From<OutputArgs> for Output {
    fn from(args: OutputArgs) -> Self {
        Self {
            json: args.json,
            quiet: args.quiet,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model over HTTP
    Serve(ServeArgs),
    /// Answer one prompt, or chat in the terminal
    Run(RunArgs),
    /// Fetch a model
    Pull(PullArgs),
    /// List the models on this machine
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Describe a model on this machine
    Show(ShowArgs),
    /// Delete models from this machine
    Rm(RemoveArgs),
    /// Measure how fast a model reads and writes here
    Bench(BenchArgs),
    /// Print the metadata and tensors of a GGUF file
    Inspect(InspectArgs),
    /// Show what went wrong in a running server
    Faults(FaultsArgs),
    /// Show or lift the ban on requests that have killed engines
    Quarantine(QuarantineArgs),
    /// Order a fault in a running server
    #[cfg(feature = "fault-injection")]
    Inject(InjectArgs),
    /// The disposable process that the server starts and restarts
    #[command(hide = true)]
    Engine,
}

impl Cli {
    /// # Errors
    /// What clap has to say: help, version, or a usage error with the nearest name.
    pub(crate) fn from_words(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        Self::try_parse_from(spelling::normalize(words))
    }
}

#[cfg(test)]
mod tests;
