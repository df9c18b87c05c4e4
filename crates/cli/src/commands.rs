//! The words of the command line.

pub(crate) mod engine;
pub(crate) mod run;
pub(crate) mod serve;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::args::ModelArguments;

/// The model's file on this machine.
fn model_file(arguments: &ModelArguments) -> Result<PathBuf> {
    let source = arguments.source().context("name a model")?;
    Ok(PathBuf::from(source))
}

/// The template that replaces the model's own.
fn template(file: Option<&Path>) -> Result<Option<String>> {
    let read = |file: &Path| {
        std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the chat template {}", file.display()))
    };
    file.map(read).transpose()
}
