//! Checks, test set-up, reference numbers and benchmarks of Relight, in Rust instead of shell.
//!
//! `cargo xtask test` is the whole gate. Nothing here links a crate of ours: the server is
//! built by cargo and driven from outside, as a user's would be.
#![expect(
    clippy::print_stdout,
    reason = "a command-line tool talks to its terminal"
)]

mod tidy;
mod workspace;

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
        Command::Tidy => tidy::run(&workspace),
    }
}
