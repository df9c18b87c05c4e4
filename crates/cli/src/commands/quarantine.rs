//! `relight quarantine`: requests that a running server refuses because they have killed
//! engines.

use anyhow::Result;
use serde_json::Value;
use ureq::http::Method;

use crate::args::{QuarantineAction, QuarantineArgs, ServerArgs};
use crate::output::Output;
use crate::running::{RunningServer, entries};

/// # Errors
/// What the server says against it.
pub(crate) fn quarantine(args: &QuarantineArgs, output: Output) -> Result<()> {
    match &args.action {
        QuarantineAction::List { server } => list(server, output),
        QuarantineAction::Lift {
            fingerprint,
            server,
            ..
        } => lift(fingerprint.as_deref(), server, output),
    }
}

fn list(server: &ServerArgs, output: Output) -> Result<()> {
    let answer = RunningServer::new(server).call(Method::GET, "/v1/quarantine", None)?;
    if output.json {
        output.value(&answer)?;
        return Ok(());
    }
    for entry in entries(&answer) {
        let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
        let seconds = entry["seconds_left"].as_u64().unwrap_or_default();
        output.line(&format!(
            "{}  {seconds} s left, fault {}",
            text("fingerprint"),
            text("fault_id")
        ))?;
    }
    Ok(())
}

fn lift(fingerprint: Option<&str>, server: &ServerArgs, output: Output) -> Result<()> {
    let path = match fingerprint {
        Some(fingerprint) => format!("/v1/quarantine/{fingerprint}"),
        None => "/v1/quarantine".to_owned(),
    };
    let answer = RunningServer::new(server).call(Method::DELETE, &path, None)?;
    if output.json {
        output.value(&answer)?;
    } else {
        let lifted = answer
            .get("lifted")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        output.line(&format!("{lifted} lifted"))?;
    }
    Ok(())
}
