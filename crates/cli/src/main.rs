//! The `relight` command: a table of words, each a module of its own.

mod args;
mod logs;

use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse_from(args::normalised(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are "errors" with code 0. A closed terminal changes nothing.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    logs::start(&arguments.logs);
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(_) | Command::Run(_) | Command::Engine => {
            anyhow::bail!("this command is being wired")
        }
    }
}
