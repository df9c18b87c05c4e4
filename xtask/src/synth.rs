//! `cargo xtask synth`: large random models for measurements, in `models/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::setup;
use crate::terminal::run;
use crate::workspace::Workspace;

/// Whose vocabulary the files borrow.
const LENDER: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Writes the model called `name` unless it is there; `relight-tiny-model` knows the names.
pub(crate) fn write(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    setup::ensure_models(workspace)?;
    let models = workspace.path("models");
    let target = models.join(file_name(name));
    if target.is_file() {
        println!("{} is there", target.display());
        return Ok(target);
    }
    run(workspace.cargo().args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "relight-tiny-model",
        "--example",
        "synthetic",
    ]))?;
    let writer = workspace
        .target_directory()?
        .join("release/examples/synthetic");
    run(Command::new(writer)
        .arg(models.join(LENDER))
        .arg(name)
        .arg(&target))?;
    ensure!(target.is_file(), "no {} was written", target.display());
    println!("wrote {}", target.display());
    Ok(target)
}

/// The file of a synthetic model within `models/`.
pub(crate) fn file_name(name: &str) -> String {
    format!("synth-{name}.gguf")
}
