//! The dependency table: which crate of ours may depend on which.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::Finding;
use crate::workspace::Workspace;

/// Our crates and the crates of ours that each may link. The first four know nothing of ours;
/// the front (`supervisor`, `server`) must never link what interprets models or prompts.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kernels", &[]),
    ("gguf", &[]),
    ("protocol", &[]),
    ("xtask", &[]),
    ("model", &["kernels", "gguf"]),
    ("engine", &["kernels", "gguf", "model", "protocol"]),
    ("supervisor", &["protocol"]),
    ("server", &["supervisor", "protocol"]),
    (
        "cli",
        &[
            "kernels",
            "gguf",
            "protocol",
            "model",
            "engine",
            "supervisor",
            "server",
        ],
    ),
    ("tiny-model", &["gguf"]),
    ("microbench", &["kernels"]),
    (
        "sim",
        &["engine", "supervisor", "model", "gguf", "protocol"],
    ),
];

/// Crates for tests: any crate may have them as dev-dependencies, none may link them.
const DEVELOPMENT: &[&str] = &["tiny-model", "sim"];

/// One dependency of a package of ours on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) only_for_tests: bool,
}

/// Our crates, what they depend on among themselves, and what they depend on outside.
#[derive(Debug, Default)]
pub(super) struct Graph {
    names: Vec<String>,
    edges: Vec<Edge>,
    external: BTreeSet<String>,
}

impl Graph {
    pub(super) fn read(workspace: &Workspace) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(workspace.path("Cargo.toml"))
            .no_deps()
            .exec()
            .context("cargo metadata failed")?;
        let mut graph = Self::default();
        for package in metadata.workspace_packages() {
            let from = short_name(&package.name);
            for dependency in &package.dependencies {
                if dependency.path.is_none() {
                    graph.external.insert(dependency.name.clone());
                    continue;
                }
                graph.edges.push(Edge {
                    from: from.clone(),
                    to: short_name(&dependency.name),
                    only_for_tests: dependency.kind == DependencyKind::Development,
                });
            }
            graph.names.push(from);
        }
        Ok(graph)
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        check_edges(&self.names, &self.edges)
    }

    /// Crates of others that ours name in their manifests.
    pub(super) fn external_count(&self) -> usize {
        self.external.len()
    }
}

fn short_name(package: &str) -> String {
    package.trim_start_matches("relight-").to_owned()
}

pub(super) fn check_edges(names: &[String], edges: &[Edge]) -> Vec<Finding> {
    let table: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let unknown = names
        .iter()
        .filter(|name| !table.contains_key(name.as_str()))
        .map(|name| {
            let message = "this crate is missing in the dependency table (xtask/src/tidy/graph.rs)";
            Finding::new(&manifest(name), 0, message)
        });
    let forbidden = edges
        .iter()
        .filter(|edge| !is_allowed(&table, edge))
        .map(|edge| {
            let message = format!("{} may not depend on {}", edge.from, edge.to);
            Finding::new(&manifest(&edge.from), 0, message)
        });
    unknown.chain(forbidden).collect()
}

fn is_allowed(table: &BTreeMap<&str, &[&str]>, edge: &Edge) -> bool {
    if DEVELOPMENT.contains(&edge.to.as_str()) {
        return edge.only_for_tests || edge.from == "sim";
    }
    table
        .get(edge.from.as_str())
        .is_some_and(|allowed| allowed.contains(&edge.to.as_str()))
}

fn manifest(name: &str) -> String {
    if name == "xtask" {
        return "xtask/Cargo.toml".to_owned();
    }
    format!("crates/{name}/Cargo.toml")
}
