//! Where the repository is and which files belong to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

/// The repository this xtask was built from.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    pub(crate) fn of_this_crate() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no parent folder")?
            .to_path_buf();
        ensure!(
            root.join("Cargo.toml").is_file(),
            "{} holds no workspace: was the repository moved after the build?",
            root.display()
        );
        Ok(Self { root })
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The cargo that runs us, in the root.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }

    pub(crate) fn target_directory(&self) -> Result<PathBuf> {
        let metadata = MetadataCommand::new()
            .manifest_path(self.path("Cargo.toml"))
            .no_deps()
            .exec()
            .context("cargo metadata failed")?;
        Ok(metadata.target_directory.into_std_path_buf())
    }

    /// A folder for what can be made again, outside git.
    pub(crate) fn cache(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path(".cache").join(name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// The files git tracks or would track, relative to the root, sorted.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let list = self.git(&[
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])?;
        let mut files: Vec<String> = list
            .split('\0')
            .filter(|name| !name.is_empty() && self.root.join(name).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(&self.root)
            .output()
            .context("git cannot be started")?;
        if !output.status.success() {
            bail!(
                "git {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
