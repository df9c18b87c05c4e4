//! `relight show`: one model in a few lines.

use std::path::Path;

use serde_json::json;

use super::summary::Summary;
use crate::args::ShowArgs;
use crate::output::{Output, megabytes};
use crate::store::{Store, with_header};

/// # Errors
/// If the model is not here or its file is broken. Nothing is fetched.
pub(crate) fn show(args: &ShowArgs, output: Output) -> anyhow::Result<()> {
    let store = Store::open(args.folder.models_dir.as_deref(), true, output);
    let model = if Path::new(&args.model).is_file() {
        store.obtain(&args.model)?
    } else {
        store.find(&args.model)?
    };
    let summary = with_header(&model.path, Summary::of)?;
    let path = model.path.display().to_string();
    if output.json {
        let mut value = summary.to_json();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("name".to_owned(), json!(model.name));
            fields.insert("path".to_owned(), json!(path));
            fields.insert("bytes".to_owned(), json!(model.bytes));
            fields.insert("record".to_owned(), json!(model.record));
        }
        output.value(&value)?;
        return Ok(());
    }
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let record = model.record.as_ref();
    let lines = [
        ("name", Some(model.name.clone())),
        ("title", summary.name.clone()),
        ("architecture", summary.architecture.clone()),
        ("format", summary.quantization.map(str::to_owned)),
        (
            "parameters",
            Some(format!("{:.1} M", summary.parameters as f64 / 1e6)),
        ),
        ("layers", number(summary.layers)),
        ("hidden", number(summary.hidden)),
        ("context", number(summary.context)),
        (
            "vocabulary",
            summary.vocabulary.map(|count| count.to_string()),
        ),
        ("license", summary.license.clone()),
        (
            "chat template",
            Some(if summary.chat_template { "yes" } else { "no" }.to_owned()),
        ),
        ("file", Some(format!("{path} ({})", megabytes(model.bytes)))),
        ("source", record.map(|record| record.sources.join(", "))),
        ("sha256", record.map(|record| record.sha256.clone())),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            output.line(&format!("{name:14} {value}"))?;
        }
    }
    Ok(())
}
