//! What users of SDKs see when the server fails under them. Each SDK has a server of its own,
//! built to fail on order, since its last check kills the server.

use std::process::Command;

use anyhow::Result;

use crate::server::Server;
use crate::setup::{self, MODELS};
use crate::terminal::{Tally, run_tests};
use crate::workspace::Workspace;

/// The SDKs whose installation is small.
pub(crate) fn small(workspace: &Workspace) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut python = setup::client_environment(workspace)?.command();
    python.arg(workspace.path("clients/failures.py"));
    tally.add(run_sdk(workspace, python, "openai")?);
    for sdk in ["openai", "ai-compatible", "ai-openai"] {
        let mut node = Command::new("node");
        node.arg(workspace.path("clients/node/failures.mjs"));
        tally.add(run_sdk(workspace, node, sdk)?);
    }
    Ok(tally)
}

/// Those that take hundreds of megabytes.
pub(crate) fn large(workspace: &Workspace) -> Result<Tally> {
    setup::ensure_models(workspace)?;
    let venv = setup::large_client_environment(workspace)?;
    let mut tally = Tally::default();
    for sdk in ["langchain", "litellm"] {
        let mut python = venv.command();
        python.arg(workspace.path("clients/failures.py"));
        tally.add(run_sdk(workspace, python, sdk)?);
    }
    Ok(tally)
}

fn run_sdk(workspace: &Workspace, mut script: Command, sdk: &str) -> Result<Tally> {
    let [chat_model, _] = &MODELS;
    let mut serve = Command::new(workspace.build_failing_relight()?);
    serve
        .arg("serve")
        .arg(chat_model.path(workspace))
        .env("RELIGHT_LOG", "warn");
    let log = workspace.cache("logs")?.join(format!("failures-{sdk}.log"));
    let server = Server::start(serve, &log)?;
    script
        .args([sdk, &server.client.base_url()])
        .arg(server.pid().to_string());
    let tally = run_tests(&mut script)?;
    if tally.failed > 0 {
        println!("{sdk} failed{}", server.last_lines());
    }
    Ok(tally)
}
