//! Rules about the documents: links and paths lead somewhere, and promises name tests that exist.

use std::collections::BTreeSet;

use super::Finding;

/// The document whose promises each name the test that holds it.
const PROMISES: &str = "SPECIFICATION.md";
/// Folders whose paths the documents mention.
const FOLDERS: &[&str] = &["crates/", "xtask/", "oracle/", "clients/", "docs/", "fuzz/"];
/// Test names are sentences; fewer words are some other identifier.
const SENTENCE_WORDS_MIN: usize = 4;

/// Finds links from `file` to nothing. `exists` takes a path relative to the root.
pub(super) fn check_links(
    file: &str,
    content: &str,
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in content.lines().enumerate() {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains(':') {
                continue;
            }
            if !exists(&resolve(file, target)) {
                findings.push(Finding::new(
                    file,
                    index + 1,
                    format!("the link to {target} leads nowhere"),
                ));
            }
        }
    }
    findings
}

/// Finds backticked paths of the repository that are not there.
pub(super) fn check_paths(
    file: &str,
    content: &str,
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in content.lines().enumerate() {
        for quoted in quoted(line) {
            let path = quoted.split("::").next().unwrap_or_default();
            if FOLDERS.iter().any(|folder| path.starts_with(folder))
                && !is_pattern(path)
                && !exists(path)
            {
                findings.push(Finding::new(
                    file,
                    index + 1,
                    format!("there is no `{path}`"),
                ));
            }
        }
    }
    findings
}

/// What stands between backticks: every second piece.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a path stands for many.
fn is_pattern(path: &str) -> bool {
    path.contains([' ', '*', '{', '<', '…']) || path.contains("NAME")
}

/// `target` as seen from `file`, relative to the root.
fn resolve(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Names of all functions in a Rust or Python source.
pub(super) fn function_names(content: &str) -> BTreeSet<String> {
    content
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once("fn ").or_else(|| line.split_once("def "))?;
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
            rest.get(..end).map(str::to_owned)
        })
        .collect()
}

/// Finds promises that name a test nobody wrote.
pub(super) fn check_promises(
    file: &str,
    content: &str,
    functions: &BTreeSet<String>,
) -> Vec<Finding> {
    if file != PROMISES {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in content.lines().enumerate() {
        for quoted in quoted(line) {
            let name = quoted.rsplit("::").next().unwrap_or_default();
            if is_sentence(name) && !functions.contains(name) {
                findings.push(Finding::new(
                    file,
                    index + 1,
                    format!("there is no test `{name}`"),
                ));
            }
        }
    }
    findings
}

fn is_sentence(name: &str) -> bool {
    let is_snake = name
        .chars()
        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    is_snake && name.split('_').filter(|word| !word.is_empty()).count() >= SENTENCE_WORDS_MIN
}
