//! `relight pull`: models come to this machine.

use serde_json::json;

use crate::args::PullArgs;
use crate::output::{Output, megabytes};
use crate::store::{DEFAULT, Store};

/// # Errors
/// If a model cannot be fetched; those before it stay.
pub(crate) fn pull(args: &PullArgs, output: Output) -> anyhow::Result<()> {
    let store = Store::open(
        args.folder.models_dir.as_deref(),
        args.folder.offline,
        output,
    );
    let default = [DEFAULT.name.to_owned()];
    let wanted = if args.models.is_empty() {
        default.as_slice()
    } else {
        args.models.as_slice()
    };
    let mut pulled = Vec::new();
    for text in wanted {
        let model = store.pull(text)?;
        let path = model.path.display().to_string();
        if output.json {
            let sha256 = model.record.map(|record| record.sha256);
            pulled.push(json!({
                "name": model.name, "path": path, "bytes": model.bytes, "sha256": sha256,
            }));
        } else {
            output.line(&format!(
                "{} ({}) {path}",
                model.name,
                megabytes(model.bytes)
            ))?;
        }
    }
    if output.json {
        output.value(&pulled.into())?;
    }
    Ok(())
}
