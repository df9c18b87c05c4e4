//! The kernels' tests for 64-bit ARM, cross-compiled and run by `qemu-aarch64`. Nothing is
//! installed here: what is missing is named, and the tests are skipped.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::terminal::{Tally, run_tests};
use crate::workspace::Workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian's cross compiler has the C library of its target.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// What the tests need and how it is had.
const INSTALL: &str = "`rustup target add aarch64-unknown-linux-gnu` and \
    `apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user` install it";

/// Tests of whole models on the tiers, those that take seconds even under emulation.
const MODEL_TESTS: [&str; 2] = [
    "tiny_models_have_the_logits_of_transformers_on_every_tier",
    "invariance::chunks_change_no_bit",
];

/// Every test of `kernels` and some of `model` on the NEON tiers.
pub(crate) fn neon(workspace: &Workspace) -> Result<Tally> {
    if cfg!(target_arch = "aarch64") {
        println!("the tests before have run it on the processor");
        return Ok(Tally::default());
    }
    let missing = missing()?;
    if !missing.is_empty() {
        println!("SKIPPED, NEON is not tested: no {}", missing.join(", no "));
        println!("{INSTALL}");
        return Ok(Tally::default());
    }
    let kernels = ["-p", "relight-kernels", "--lib"];
    let mut tally = run_tests(emulated(workspace, "test").args(kernels))?;
    let mut model = emulated(workspace, "test");
    model.args(["-p", "relight-model", "--lib", "--"]);
    tally.add(run_tests(model.args(MODEL_TESTS))?);
    Ok(tally)
}

/// What of the tool chain is not there.
fn missing() -> Result<Vec<String>> {
    let mut missing: Vec<String> = [LINKER, EMULATOR]
        .into_iter()
        .filter(|program| !starts(program))
        .map(str::to_owned)
        .collect();
    if !Path::new(LIBRARIES).is_dir() {
        missing.push(LIBRARIES.to_owned());
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .context("rustc cannot be started")?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !Path::new(&folder).is_dir() {
        missing.push(format!("standard library for {TARGET}"));
    }
    Ok(missing)
}

fn starts(program: &str) -> bool {
    let status = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Crates that are optimized less than elsewhere: every kernel is compiled for three tiers, and
/// to do it well takes longer than the tests need then.
const SLOW_TO_BUILD: [&str; 2] = ["relight-kernels", "relight-model"];

/// A command of cargo for the foreign processor.
fn emulated(workspace: &Workspace, command: &str) -> Command {
    let mut cargo = workspace.cargo();
    cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("{EMULATOR} -L {LIBRARIES}"),
        )
        .args([command, "--quiet", "--target", TARGET]);
    for name in SLOW_TO_BUILD {
        cargo.args([
            "--config",
            &format!("profile.dev.package.{name}.opt-level=1"),
        ]);
    }
    cargo
}
