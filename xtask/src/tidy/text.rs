//! Rules about any file of the repository: size, words, paths, the README.

use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;
use crate::workspace::Workspace;

const FILE_BYTES_MAX: usize = 1 << 20;

/// Model files are fetched, never committed, except the generated ones of a few hundred kB.
const TINY_MODELS: &str = "oracle/tiny/";
const MODEL_EXTENSIONS: &[&str] = &["gguf", "safetensors", "bin", "pt", "onnx"];

/// Names that say nothing about what a module holds.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "misc", "types", "manager", "v2",
];

/// Marks of unfinished work; the owner of a real one files an issue instead.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("HA", "CK:"),
];

/// Folders of one machine, and hosts that a configured package client knows by itself.
const PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("pypi", ".org"),
    concat!("python", "hosted"),
    concat!("npm", "js.org"),
];

const README_SCREEN_LINES: usize = 40;
const README_COMMANDS: &[&str] = &["cargo run --release", "cargo xtask test"];

pub(super) fn check_size(file: &str, bytes: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    if bytes > FILE_BYTES_MAX {
        let message = format!("{bytes} bytes; committed files stay below {FILE_BYTES_MAX}");
        findings.push(Finding::new(file, 0, message));
    }
    let extension = Path::new(file)
        .extension()
        .and_then(|extension| extension.to_str());
    let is_model = extension.is_some_and(|extension| MODEL_EXTENSIONS.contains(&extension));
    if is_model && !file.starts_with(TINY_MODELS) {
        findings.push(Finding::new(
            file,
            0,
            "model files are fetched, not committed",
        ));
    }
    findings
}

pub(super) fn check(file: &str, content: &str) -> Vec<Finding> {
    let mut findings = check_name(file);
    if file == "Cargo.lock" {
        return findings;
    }
    for (index, line) in content.lines().enumerate() {
        for mark in MARKS.iter().filter(|mark| line.contains(**mark)) {
            let message =
                format!("{mark}: finish it, or file an issue and say here what holds today");
            findings.push(Finding::new(file, index + 1, message));
        }
        for place in PLACES.iter().filter(|place| line.contains(**place)) {
            let message = format!("{place} is a place outside the project");
            findings.push(Finding::new(file, index + 1, message));
        }
    }
    findings
}

fn check_name(file: &str) -> Vec<Finding> {
    Path::new(file)
        .iter()
        .filter_map(|part| Path::new(part).file_stem()?.to_str())
        .filter(|stem| EMPTY_NAMES.contains(stem))
        .map(|stem| {
            Finding::new(
                file,
                0,
                format!("`{stem}` says nothing: name it after what it holds"),
            )
        })
        .collect()
}

pub(super) fn check_readme(workspace: &Workspace) -> Result<Vec<Finding>> {
    let readme = workspace.path("README.md");
    if !readme.exists() {
        return Ok(vec![Finding::new("README.md", 0, "is missing")]);
    }
    let content = std::fs::read_to_string(readme).context("cannot read README.md")?;
    Ok(check_readme_screen(&content))
}

pub(super) fn check_readme_screen(content: &str) -> Vec<Finding> {
    let screen: Vec<&str> = content.lines().take(README_SCREEN_LINES).collect();
    README_COMMANDS
        .iter()
        .filter(|command| !screen.iter().any(|line| line.contains(**command)))
        .map(|command| {
            let message =
                format!("`{command}` belongs on the first screen ({README_SCREEN_LINES} lines)");
            Finding::new("README.md", 0, message)
        })
        .collect()
}
