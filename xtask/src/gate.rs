//! `cargo xtask test`: every check in order, each announced, the first failure ends the run.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::emulation;
use crate::failures;
use crate::load::{self, Level};
use crate::server::Server;
use crate::setup::{self, MODELS, Profile};
use crate::terminal::{Tally, now, run, run_tests, seconds};
use crate::tidy;
use crate::workspace::Workspace;

/// Clients at once and requests between them, as the promises name them.
const LOAD_LEVELS: [(usize, usize); 3] = [(1, 3), (8, 16), (32, 32)];

/// Runs all steps, or those that are named.
pub(crate) fn run_all(workspace: &Workspace, names: &[String]) -> Result<()> {
    let steps = chosen_steps(names)?;
    let started = now();
    let mut tally = Tally::default();
    println!("{}", processor());
    let result = run_steps(workspace, &steps, &mut tally);
    if let Err(error) = &result {
        println!("error: {error:#}");
    }
    println!("the gate took {}", seconds(now() - started));
    println!("{} passed, {} failed", tally.passed, tally.failed);
    match result {
        Ok(()) => Ok(()),
        Err(_) => bail!("the gate is closed"),
    }
}

/// A check: its name, what counts as its tests.
type Step = (&'static str, fn(&Workspace) -> Result<Tally>);

const STEPS: &[Step] = &[
    ("format", format),
    ("tidy", |workspace| single(tidy::run(workspace))),
    ("clippy", clippy),
    ("setup", |workspace| single(setup::run(workspace))),
    ("tests", cargo_test),
    ("modelled", modelled_tiers),
    ("absence", |workspace| single(no_injection(workspace))),
    ("clients", clients),
    ("failures", failures::small),
];

/// Steps that run only when named: what they install is large, or they take long.
const NAMED_STEPS: &[Step] = &[("large-sdks", failures::large), ("neon", emulation::neon)];

fn chosen_steps(names: &[String]) -> Result<Vec<Step>> {
    let all = STEPS.iter().chain(NAMED_STEPS);
    let known: Vec<&str> = all.clone().map(|(name, _)| *name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no step is called {name}; there are {}", known.join(", "));
    }
    if names.is_empty() {
        return Ok(STEPS.to_vec());
    }
    let is_chosen = |step: &Step| names.iter().any(|chosen| chosen == step.0);
    Ok(all.copied().filter(is_chosen).collect())
}

fn run_steps(workspace: &Workspace, steps: &[Step], tally: &mut Tally) -> Result<()> {
    for (name, step) in steps {
        println!("== {name}");
        let started = now();
        let counts = step(workspace).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally {
                passed: 0,
                failed: 1,
            }
        });
        tally.add(counts);
        println!(
            "== {name}: {} passed, {} failed, {}",
            counts.passed,
            counts.failed,
            seconds(now() - started)
        );
        if counts.failed > 0 {
            bail!("{name} failed");
        }
    }
    Ok(())
}

/// A step that is one check in itself.
fn single(result: Result<()>) -> Result<Tally> {
    result.map(|()| Tally {
        passed: 1,
        failed: 0,
    })
}

fn format(workspace: &Workspace) -> Result<Tally> {
    single(run(workspace.cargo().args(["fmt", "--all", "--check"])))
}

fn clippy(workspace: &Workspace) -> Result<Tally> {
    let mut cargo = workspace.cargo();
    cargo.args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--all-features",
    ]);
    single(run(cargo.args(["--", "-D", "warnings"])))
}

fn cargo_test(workspace: &Workspace) -> Result<Tally> {
    // With faults on order, which the tests of the fault matrix need.
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--quiet", "--workspace"]);
    // Benchmarks have no tests, and their library takes its time to build.
    cargo.args(["--exclude", "relight-microbench"]);
    run_tests(cargo.args(["--features", "relight-cli/fault-injection"]))
}

/// The program as users build it takes no orders for faults.
fn no_injection(workspace: &Workspace) -> Result<()> {
    let program = workspace.build_relight(Profile::Development)?;
    let bytes = std::fs::read(&program)?;
    for trace in ["an ordered fault strikes", "faults/inject"] {
        let is_there = bytes
            .windows(trace.len())
            .any(|part| part == trace.as_bytes());
        ensure!(!is_there, "`{trace}` is in {}", program.display());
    }
    let status = Command::new(&program)
        .args(["inject", "shared", "panic"])
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.code() == Some(2), "`relight inject` is a command");
    println!("ok no fault can be ordered");
    Ok(())
}

/// Where the processor lacks AVX-512 or AVX-VNNI, the tests of every kernel once more, with the
/// instructions modelled.
fn modelled_tiers(workspace: &Workspace) -> Result<Tally> {
    if has_avx512() && has_avx_vnni() {
        println!("the tests before have run all tiers on the processor");
        return Ok(Tally::default());
    }
    let mut cargo = workspace.cargo();
    cargo.args([
        "test",
        "--quiet",
        "-p",
        "relight-kernels",
        "-p",
        "relight-model",
        "--features",
        "relight-kernels/modelled-tiers",
    ]);
    run_tests(&mut cargo)
}

/// The SDKs and a load against one running server, as users run it.
fn clients(workspace: &Workspace) -> Result<Tally> {
    let [chat_model, _] = &MODELS;
    let mut serve = Command::new(workspace.build_relight(Profile::Development)?);
    serve
        .arg("serve")
        .arg(chat_model.path(workspace))
        .args(["-np", "8"]);
    let server = Server::start(serve, &workspace.cache("logs")?.join("gate-server.log"))?;
    let mut tally = client_scripts(workspace, &server)?;
    for (concurrency, requests) in LOAD_LEVELS {
        tally.add(load_level(&server, concurrency, requests)?);
    }
    if tally.failed > 0 {
        println!("clients failed{}", server.last_lines());
        return Ok(tally);
    }
    server.stop()?;
    println!("ok the server ends on SIGTERM");
    tally.passed += 1;
    Ok(tally)
}

fn client_scripts(workspace: &Workspace, server: &Server) -> Result<Tally> {
    let base_url = server.client.base_url();
    let mut python = setup::client_environment(workspace)?.command();
    python
        .arg(workspace.path("clients/openai_python.py"))
        .arg(&base_url);
    let mut tally = run_tests(python.args(["--server-pid", &server.pid().to_string()]))?;
    let mut node = Command::new("node");
    tally.add(run_tests(
        node.arg(workspace.path("clients/node/openai_node.mjs"))
            .arg(&base_url),
    )?);
    Ok(tally)
}

fn load_level(server: &Server, concurrency: usize, requests: usize) -> Result<Tally> {
    let level = Level {
        concurrency,
        requests,
        shared_words: 0,
        prompt_words: 200,
        output_tokens: 64,
        seed: 1000 * concurrency as u64,
    };
    match load::run(server.client, &level) {
        Ok(outcome) => {
            let longest = outcome
                .completions
                .iter()
                .map(load::Completion::time_to_first)
                .max();
            println!(
                "ok {requests} requests from {concurrency} clients: {:.0} tokens/s, first token within {}",
                outcome.output_rate(),
                seconds(longest.unwrap_or(Duration::ZERO))
            );
            Ok(Tally {
                passed: 1,
                failed: 0,
            })
        }
        Err(error) => {
            println!("FAILED {requests} requests from {concurrency} clients: {error:#}");
            Ok(Tally {
                passed: 0,
                failed: 1,
            })
        }
    }
}

/// Which instruction sets the kernels' tests can run here: they run every one there is.
#[cfg(target_arch = "x86_64")]
fn processor() -> String {
    let has_avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx2 = if has_avx2 {
        "run"
    } else {
        "not run, this processor lacks it"
    };
    let modelled = |is_there| {
        if is_there {
            "run"
        } else {
            "run on a model of its instructions"
        }
    };
    let (vnni, avx512) = (modelled(has_avx_vnni()), modelled(has_avx512()));
    format!(
        "instruction sets: scalar run; avx2 {avx2}; avx-vnni {vnni}; avx512 {avx512}; \
         neon by `cargo xtask test neon`"
    )
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(target_arch = "x86_64")]
fn has_avx_vnni() -> bool {
    is_x86_feature_detected!("avxvnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx_vnni() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> String {
    "instruction sets: scalar and neon run; avx2, avx-vnni and avx512 not run, this is no x86-64 processor"
        .to_owned()
}
