//! Rules about the sources that no lint knows, each small and fast enough for every test run.

mod documents;
mod graph;
mod ratchet;
mod source;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result, bail};

use self::graph::Graph;
use self::ratchet::Counts;
use self::source::{Source, TestFiles};
use crate::workspace::Workspace;

/// Where a rule is broken and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    file: String,
    /// From 1; 0 when the whole file is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(out, "{}: {}", self.file, self.message)
        } else {
            write!(out, "{}:{}: {}", self.file, self.line, self.message)
        }
    }
}

/// Prints every finding and fails if there is one.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let findings = findings(workspace)?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: no findings");
        return Ok(());
    }
    bail!("tidy: {} findings", findings.len())
}

fn findings(workspace: &Workspace) -> Result<Vec<Finding>> {
    let files = workspace.files()?;
    let graph = Graph::read(workspace)?;
    let mut findings = graph.check();
    let mut sources = Vec::new();
    let mut pages = Vec::new();
    let mut functions = BTreeSet::new();
    for file in &files {
        let bytes =
            std::fs::read(workspace.path(file)).with_context(|| format!("cannot read {file}"))?;
        findings.extend(text::check_size(file, bytes.len()));
        let Ok(content) = String::from_utf8(bytes) else {
            continue;
        };
        findings.extend(text::check(file, &content));
        if file.ends_with(".rs") || file.ends_with(".py") {
            functions.extend(documents::function_names(&content));
        }
        if file.ends_with(".rs") {
            sources.push((file, content));
        } else if file.ends_with(".md") {
            pages.push((file, content));
        }
    }
    let mut tests = TestFiles::default();
    for (file, content) in &sources {
        tests.add(file, content);
    }
    let mut counts = Counts::new(graph.external_count());
    for (file, content) in &sources {
        let source = Source::parse(file, content, &tests)?;
        findings.extend(source.check());
        counts.add(&source);
    }
    for (file, content) in &pages {
        let exists = |target: &str| workspace.path(target).exists();
        findings.extend(documents::check_links(file, content, exists));
        findings.extend(documents::check_paths(file, content, exists));
        findings.extend(documents::check_promises(file, content, &functions));
    }
    findings.extend(text::check_readme(workspace)?);
    findings.extend(counts.check());
    Ok(findings)
}
