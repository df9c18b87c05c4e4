//! `relight list`: the models on this machine.

use serde_json::json;

use super::summary::Summary;
use crate::args::ListArgs;
use crate::output::{Output, megabytes};
use crate::store::{CATALOGUE, Model, Store, StoreError, with_header};

/// # Errors
/// If the folder cannot be read. A broken file is listed as such.
pub(crate) fn list(args: &ListArgs, output: Output) -> anyhow::Result<()> {
    let store = Store::open(args.folder.models_dir.as_deref(), true, output);
    let models: Vec<(Model, Result<Summary, StoreError>)> = store
        .list()?
        .into_iter()
        .map(|model| {
            let summary = with_header(&model.path, Summary::of);
            (model, summary)
        })
        .collect();
    if output.json {
        let models: Vec<_> = models
            .iter()
            .map(|(model, summary)| entry(model, summary))
            .collect();
        output.value(&models.into())?;
        return Ok(());
    }
    let absent = CATALOGUE
        .iter()
        .filter(|entry| models.iter().all(|(model, _)| model.name != entry.name))
        .map(|entry| entry.name);
    let absent: Vec<&str> = absent.collect();
    if models.is_empty() {
        output.note(&format!("no models in {}", store.folder().display()));
    } else {
        table(&models, output)?;
    }
    if !absent.is_empty() {
        output.note(&format!(
            "to be had with `relight pull`: {}",
            absent.join(", ")
        ));
    }
    Ok(())
}

fn entry(model: &Model, summary: &Result<Summary, StoreError>) -> serde_json::Value {
    let mut entry = json!({
        "name": model.name,
        "path": model.path.display().to_string(),
        "bytes": model.bytes,
        "sources": model.record.as_ref().map(|record| record.sources.clone()),
        "sha256": model.record.as_ref().map(|record| record.sha256.clone()),
    });
    let more = match summary {
        Ok(summary) => summary.to_json(),
        Err(error) => json!({"error": chain(error)}),
    };
    if let (Some(entry), Some(more)) = (entry.as_object_mut(), more.as_object()) {
        entry.extend(more.clone());
    }
    entry
}

fn table(models: &[(Model, Result<Summary, StoreError>)], output: Output) -> anyhow::Result<()> {
    let width = models.iter().map(|(model, _)| model.name.chars().count());
    let width = width.max().unwrap_or(0).max(4);
    output.line(&format!(
        "{:width$}  {:>9}  {:8}  {:6}  {:>7}",
        "NAME", "SIZE", "ARCH", "FORMAT", "CONTEXT"
    ))?;
    for (model, summary) in models {
        let described = match summary {
            Ok(summary) => format!(
                "{:8}  {:6}  {:>7}",
                summary.architecture.as_deref().unwrap_or("?"),
                summary.quantization.unwrap_or("?"),
                summary
                    .context
                    .map_or_else(|| "?".to_owned(), |context| context.to_string()),
            ),
            Err(error) => chain(error),
        };
        let size = megabytes(model.bytes);
        output.line(&format!("{:width$}  {size:>9}  {described}", model.name))?;
    }
    Ok(())
}

/// An error with its causes, on one line.
fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
