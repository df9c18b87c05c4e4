//! Checks, test set-up, reference numbers and benchmarks of Relight, in Rust instead of shell.
//!
//! `cargo xtask test` is the whole gate. Nothing here links a crate of ours: the server is
//! built by cargo and driven from outside, as a user's would be.
#![expect(
    clippy::print_stdout,
    reason = "a command-line tool talks to its terminal"
)]

mod bench;
mod document;
mod emulation;
mod failures;
mod gate;
mod http;
mod load;
mod oracle;
mod python;
mod recovery;
mod server;
mod setup;
mod synth;
mod terminal;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Checks, test set-up and benchmarks of Relight"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure all work, beside other servers with `--peers`, and write docs/performance.md.
    Bench(bench::Options),
    /// Keep one processor busy, for `bench`.
    #[command(hide = true)]
    Busy { processor: usize },
    /// Record other implementations' logits and compare ours with them (minutes).
    Oracle {
        /// Folder of a built libllama to use instead of llama-cpp-python's own.
        #[arg(long)]
        llama_library: Option<PathBuf>,
    },
    /// Mixed faults, cancels and long answers against a real server, from a seed.
    Chaos {
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 2000)]
        requests: u64,
    },
    /// Measure the pause that a killed engine makes, and write docs/performance.md.
    Recovery(recovery::Options),
    /// Fetch the test models and install the clients that the tests use.
    Setup,
    /// Write a random model of a published shape for measurements, as in `1b-q4_k_m`.
    Synth {
        /// SHAPE-MIXTURE: 1b or 8b; q4_k_m, q4_0, q6_k or q8_0.
        name: String,
    },
    /// Set up and run every check.
    Test {
        /// Only these steps: format, tidy, clippy, setup, tests, modelled, absence, clients,
        /// failures; or large-sdks and neon, which are steps only when named.
        steps: Vec<String>,
    },
    /// Hold the sources against the rules that no lint knows: sizes, dependencies, names, unsafe.
    Tidy,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    let workspace = Workspace::of_this_crate()?;
    match command {
        Command::Bench(options) => bench::run(&workspace, options),
        Command::Busy { processor } => bench::busy(*processor),
        Command::Oracle { llama_library } => oracle::run_all(&workspace, llama_library.clone()),
        Command::Chaos { seed, requests } => chaos(&workspace, *seed, *requests),
        Command::Recovery(options) => recovery::measure(&workspace, options),
        Command::Setup => setup::run(&workspace),
        Command::Synth { name } => synth::write(&workspace, name).map(|_path| ()),
        Command::Test { steps } => gate::run_all(&workspace, steps),
        Command::Tidy => tidy::run(&workspace),
    }
}

/// Runs the churn of the fault matrix for as long as is asked.
fn chaos(workspace: &Workspace, seed: u64, requests: u64) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--quiet", "-p", "relight-cli", "--test", "it"]);
    cargo.args(["--features", "fault-injection", "matrix::churn"]);
    cargo.args(["--", "--nocapture"]);
    cargo.env("RELIGHT_CHAOS_SEED", seed.to_string());
    cargo.env("RELIGHT_CHAOS_REQUESTS", requests.to_string());
    cargo.env("RUST_BACKTRACE", "0");
    terminal::run(&mut cargo)
}
