//! The `relight` command: serves, runs, fetches and inspects models.

mod args;
mod benchmark;
mod commands;
mod conversation;
mod front;
mod logs;
mod output;
mod running;
mod store;

use std::io;
use std::process::ExitCode;

use crate::args::Cli;
use crate::output::Output;

/// The command was understood and did not succeed.
const EXIT_FAILED: u8 = 1;
/// The command line makes no sense.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::from_words(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match commands::dispatch(cli.command, cli.output.into()) {
        Ok(code) => code,
        // Whoever reads our output has enough of it, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            Output::error(&error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Help and version are results; everything else is a usage error.
fn explain(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() || printed.is_err() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
