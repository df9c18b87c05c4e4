//! `relight bench`.

use anyhow::bail;

use crate::args::BenchArgs;
use crate::output::Output;
use crate::store::{DEFAULT, Store};

/// # Errors
/// Whatever stopped the command.
pub(crate) fn bench(args: &BenchArgs, output: Output) -> anyhow::Result<()> {
    let folder = args.model.folder();
    let store = Store::open(folder.models_dir.as_deref(), folder.offline, output);
    let source = args.model.source();
    let model = store.obtain(source.as_deref().unwrap_or(DEFAULT.name))?;
    for reason in args.engine.without_effect() {
        output.note(&format!("no effect: {reason}"));
    }
    let config = args.engine.config(&model.path)?;
    bail!("bench is not wired yet: {config:?}")
}
