//! What each command does. A command returns when its work is done; errors reach `main`,
//! which prints them.

pub(crate) mod bench;
pub(crate) mod engine;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod show;
mod summary;

use crate::args::Command;
use crate::output::Output;

/// The table of commands.
///
/// # Errors
/// Whatever stopped the command.
pub(crate) fn dispatch(command: &Command, output: Output) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve::serve(args, output),
        Command::Run(args) => run::run(args, output),
        Command::Pull(args) => pull::pull(args, output),
        Command::List(args) => list::list(args, output),
        Command::Show(args) => show::show(args, output),
        Command::Rm(args) => rm::rm(args, output),
        Command::Bench(args) => bench::bench(args, output),
        Command::Inspect(args) => inspect::inspect(args, output),
        Command::Engine => engine::engine(),
    }
}
