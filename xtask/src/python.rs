//! Virtual environments with pinned packages, made once and again when a pin changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::terminal;

/// A virtual environment.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The environment at `folder` with `requirements` installed, pip running with
    /// `environment`, and `finish` run after that. Does nothing when the same requirements
    /// were installed before.
    pub(crate) fn ensure(
        folder: &Path,
        requirements: &Path,
        environment: &[(&str, &str)],
        finish: impl Fn(&Self) -> Result<()>,
    ) -> Result<Self> {
        let venv = Self {
            folder: folder.to_path_buf(),
        };
        let wanted = std::fs::read_to_string(requirements)?;
        let stamp = folder.join("requirements.installed");
        if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(venv);
        }
        println!(
            "installing {} into {}",
            requirements.display(),
            folder.display()
        );
        terminal::run(Command::new("python3").args(["-m", "venv"]).arg(folder))
            .context("python3 with its venv module is needed (Debian: python3-venv)")?;
        let mut pip = venv.command();
        pip.envs(environment.iter().copied());
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ]);
        terminal::run(pip.arg(requirements)).with_context(|| {
            format!(
                "pip cannot install what {} lists: is its index reachable?",
                requirements.display()
            )
        })?;
        finish(&venv)?;
        std::fs::write(&stamp, wanted)?;
        Ok(venv)
    }

    /// The environment's interpreter.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.folder.join("bin/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// A program that this environment's packages installed.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }
}
