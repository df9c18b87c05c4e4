//! What each command does. A command returns when its work is done; errors reach `main`,
//! which prints them.

pub(crate) mod bench;
pub(crate) mod engine;
pub(crate) mod faults;
#[cfg(feature = "fault-injection")]
pub(crate) mod inject;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod pull;
pub(crate) mod quarantine;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod show;
mod summary;

use std::process::ExitCode;

use crate::args::{Command, FolderArgs};
use crate::output::Output;
use crate::store::{DEFAULT, Model, Store};

/// The table of commands.
///
/// # Errors
/// Whatever stopped the command.
pub(crate) fn dispatch(command: Command, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::serve(args, output),
        Command::Run(args) => run::run(&args, output),
        Command::Pull(args) => done(pull::pull(&args, output)),
        Command::List(args) => done(list::list(&args, output)),
        Command::Show(args) => done(show::show(&args, output)),
        Command::Rm(args) => done(rm::rm(&args, output)),
        Command::Bench(args) => bench::bench(&args, output),
        Command::Inspect(args) => done(inspect::inspect(&args, output)),
        Command::Faults(args) => done(faults::faults(&args, output)),
        Command::Quarantine(args) => done(quarantine::quarantine(&args, output)),
        #[cfg(feature = "fault-injection")]
        Command::Inject(args) => done(inject::inject(&args, output)),
        Command::Engine => Ok(engine::engine()),
    }
}

fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

/// The model that was named, or the default one, fetched if it is not there.
fn obtain(source: Option<&str>, folder: &FolderArgs, output: Output) -> anyhow::Result<Model> {
    let store = Store::open(folder.models_dir.as_deref(), folder.offline, output);
    Ok(store.obtain(source.unwrap_or(DEFAULT.name))?)
}
