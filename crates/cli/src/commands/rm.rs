//! `relight rm`: models leave this machine.

use serde_json::json;

use crate::args::RemoveArgs;
use crate::output::{Output, megabytes};
use crate::store::Store;

/// # Errors
/// If a model is not there or cannot be deleted; those before it are gone.
pub(crate) fn rm(args: &RemoveArgs, output: Output) -> anyhow::Result<()> {
    let store = Store::open(args.folder.models_dir.as_deref(), true, output);
    let mut removed = Vec::new();
    for text in &args.models {
        let model = store.remove(text)?;
        if output.json {
            removed.push(json!({"name": model.name, "bytes": model.bytes}));
        } else {
            output.line(&format!(
                "deleted {} ({})",
                model.name,
                megabytes(model.bytes)
            ))?;
        }
    }
    if output.json {
        output.value(&removed.into())?;
    }
    Ok(())
}
