//! Everything the tests need besides cargo: two models, a Python and a Node environment.
//! Each part is left alone when it is there and right.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::python::Venv;
use crate::terminal;
use crate::workspace::Workspace;

/// A real model of the tests, under `models/`.
#[derive(Debug)]
pub(crate) struct TestModel {
    /// What `relight pull` calls it, and the oracle's vectors.
    pub(crate) name: &'static str,
    pub(crate) vectors: &'static str,
    pub(crate) file: &'static str,
    bytes: u64,
    sha256: &'static str,
}

pub(crate) const MODELS: [TestModel; 2] = [
    TestModel {
        name: "smollm2-135m",
        vectors: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    TestModel {
        name: "gemma3-270m",
        vectors: "gemma3",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
];

impl TestModel {
    pub(crate) fn path(&self, workspace: &Workspace) -> PathBuf {
        workspace.path("models").join(self.file)
    }

    /// What is wrong with the file, if anything.
    fn defect(&self, workspace: &Workspace) -> Result<Option<String>> {
        let path = self.path(workspace);
        let Ok(metadata) = std::fs::metadata(&path) else {
            return Ok(Some("is missing".to_owned()));
        };
        if metadata.len() != self.bytes {
            return Ok(Some(format!(
                "has {} bytes instead of {}",
                metadata.len(),
                self.bytes
            )));
        }
        let found = sha256(&path)?;
        Ok((found != self.sha256)
            .then(|| format!("has SHA-256 {found} instead of {}", self.sha256)))
    }
}

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    ensure_models(workspace)?;
    client_environment(workspace)?;
    ensure_node_packages(workspace)?;
    println!("models, Python and Node environments are in place");
    Ok(())
}

/// Fetches each model that is missing or damaged with our own `relight pull`.
pub(crate) fn ensure_models(workspace: &Workspace) -> Result<()> {
    for model in &MODELS {
        if model.defect(workspace)?.is_none() {
            continue;
        }
        println!("fetching {}", model.name);
        let mut pull = Command::new(workspace.build_relight(Profile::Development)?);
        pull.args(["pull", model.name, "--models-dir"])
            .arg(workspace.path("models"));
        terminal::run(&mut pull)?;
        if let Some(defect) = model.defect(workspace)? {
            bail!(
                "models/{} {defect} after `relight pull {}`",
                model.file,
                model.name
            );
        }
    }
    Ok(())
}

/// The Python environment of the client checks.
pub(crate) fn client_environment(workspace: &Workspace) -> Result<Venv> {
    Venv::ensure(
        &workspace.path(".cache/venv"),
        &workspace.path("clients/requirements.txt"),
        &[],
        |_| Ok(()),
    )
}

/// The Python environment of SDKs that are large: LangChain and LiteLLM.
pub(crate) fn large_client_environment(workspace: &Workspace) -> Result<Venv> {
    Venv::ensure(
        &workspace.path(".cache/venv-large"),
        &workspace.path("clients/requirements-large.txt"),
        &[("PIP_ONLY_BINARY", ":all:"), ("PIP_NO_COMPILE", "1")],
        |_| Ok(()),
    )
}

/// Installs the packages of `clients/node` as its lock file says.
pub(crate) fn ensure_node_packages(workspace: &Workspace) -> Result<()> {
    let folder = workspace.path("clients/node");
    let wanted = std::fs::read_to_string(folder.join("package-lock.json"))?;
    let stamp = folder.join("node_modules/lock.installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(&folder);
    terminal::run(&mut npm).context("npm cannot install what clients/node/package-lock.json lists (Node.js 20 or later is needed)")?;
    std::fs::write(&stamp, wanted)?;
    Ok(())
}

/// How cargo builds the binary under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// What `cargo test` has built already.
    Development,
    Release,
}

impl Workspace {
    /// Builds the `relight` binary and gives its path.
    pub(crate) fn build_relight(&self, profile: Profile) -> Result<PathBuf> {
        let arguments: &[&str] = match profile {
            Profile::Development => &[],
            Profile::Release => &["--release"],
        };
        let folder = match profile {
            Profile::Development => "debug",
            Profile::Release => "release",
        };
        self.build(arguments, folder)
    }

    /// Builds the `relight` binary that fails on order. It is kept apart, since the next build
    /// without faults takes its place.
    pub(crate) fn build_failing_relight(&self) -> Result<PathBuf> {
        let built = self.build(&["--features", "fault-injection"], "debug")?;
        let kept = self.cache("fault-injection")?.join("relight");
        // A copy over a program that still runs would fail.
        std::fs::remove_file(&kept).ok();
        std::fs::copy(&built, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
        Ok(kept)
    }

    fn build(&self, arguments: &[&str], folder: &str) -> Result<PathBuf> {
        let mut cargo = self.cargo();
        cargo.args(["build", "--quiet", "--package", "relight-cli"]);
        terminal::run(cargo.args(["--bin", "relight"]).args(arguments))?;
        let binary = self.target_directory()?.join(folder).join("relight");
        ensure!(binary.is_file(), "cargo built no {}", binary.display());
        Ok(binary)
    }
}

pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
