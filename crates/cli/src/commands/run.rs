//! `relight run`.

use anyhow::bail;

use crate::args::RunArgs;
use crate::output::Output;
use crate::store::{DEFAULT, Store};

/// # Errors
/// Whatever stopped the command.
pub(crate) fn run(args: &RunArgs, output: Output) -> anyhow::Result<()> {
    let folder = args.folder();
    let store = Store::open(folder.models_dir.as_deref(), folder.offline, output);
    let source = args.source();
    let model = store.obtain(source.as_deref().unwrap_or(DEFAULT.name))?;
    for reason in args.engine.without_effect() {
        output.note(&format!("no effect: {reason}"));
    }
    let config = args.engine.config(&model.path)?;
    let prompt = args.prompt().unwrap_or_default();
    bail!("run is not wired yet: {prompt:?} for {config:?}")
}
