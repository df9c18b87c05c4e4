//! What was measured, kept as JSON: a run replaces the pieces that it measured anew, so that
//! a long table can be filled in parts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::peers::Engine;
use super::roofline::Roofline;
use crate::terminal::output;
use crate::workspace::Workspace;

/// Named quantities of one repetition, in seconds, bytes, tokens and tokens per second.
pub(super) type Metrics = BTreeMap<String, f64>;

/// Everything in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Samples {
    pub(super) roofline: Roofline,
    /// Why a peer takes no part in the latest run that asked for peers.
    pub(super) absent: BTreeMap<String, String>,
    pub(super) pieces: Vec<Piece>,
}

/// One work on one model: all engines in one run, repetitions interleaved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) model: String,
    pub(super) work: String,
    pub(super) date: String,
    pub(super) commit: String,
    /// The machine as it was in that run.
    pub(super) roofline: Roofline,
    pub(super) engines: BTreeMap<String, Series>,
}

/// What one engine did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Series {
    pub(super) samples: Vec<Metrics>,
    /// How it failed, if it did.
    pub(super) failure: Option<String>,
}

impl Series {
    pub(super) fn median(&self, metric: &str) -> Option<f64> {
        let mut values: Vec<f64> = self
            .samples
            .iter()
            .filter_map(|sample| sample.get(metric).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        let upper = values.get(values.len() / 2)?;
        let lower = values.get(values.len().saturating_sub(1) / 2)?;
        Some((lower + upper) / 2.0)
    }
}

impl Samples {
    fn path(workspace: &Workspace) -> Result<PathBuf> {
        Ok(workspace.cache("bench")?.join("peers.json"))
    }

    /// What earlier runs left, if anything.
    pub(super) fn load(workspace: &Workspace) -> Result<Self> {
        let path = Self::path(workspace)?;
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged: remove it", path.display())),
            Err(_absent) => Ok(Self::default()),
        }
    }

    pub(super) fn save(&self, workspace: &Workspace) -> Result<()> {
        let path = Self::path(workspace)?;
        let unfinished = path.with_extension("part");
        std::fs::write(&unfinished, serde_json::to_string_pretty(self)?)?;
        std::fs::rename(&unfinished, &path)?;
        Ok(())
    }

    pub(super) fn replace(&mut self, piece: Piece) {
        self.pieces
            .retain(|old| old.model != piece.model || old.work != piece.work);
        self.pieces.push(piece);
    }

    pub(super) fn series(&self, model: &str, work: &str, engine: Engine) -> Option<&Series> {
        self.piece(model, work)?.engines.get(engine.name())
    }

    pub(super) fn piece(&self, model: &str, work: &str) -> Option<&Piece> {
        self.pieces
            .iter()
            .find(|piece| piece.model == model && piece.work == work)
    }
}

/// Now, for people.
pub(super) fn date() -> Result<String> {
    let text = output(Command::new("date").arg("+%Y-%m-%d %H:%M"))?;
    Ok(text.trim().to_owned())
}

/// The commit of the sources.
pub(super) fn commit(workspace: &Workspace) -> Result<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(workspace.path(""));
    let text = output(git.args(["rev-parse", "--short", "HEAD"]))?;
    Ok(text.trim().to_owned())
}
