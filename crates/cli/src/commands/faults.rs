//! `relight faults`: what went wrong in a running server, and how it went on.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use ureq::http::Method;

use crate::args::FaultsArgs;
use crate::output::Output;
use crate::running::{RunningServer, entries};

/// Time between two looks of `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// # Errors
/// What the server says against it.
pub(crate) fn faults(args: &FaultsArgs, output: Output) -> Result<()> {
    let server = RunningServer::new(&args.server);
    if let Some(id) = &args.id {
        let fault = server.call(Method::GET, &format!("/v1/faults/{id}"), None)?;
        return show(&fault, output, true);
    }
    let mut shown = 0;
    loop {
        let path = format!("/v1/faults?after={shown}");
        let answer = server.call(Method::GET, &path, None)?;
        for fault in entries(&answer) {
            // While one is followed, its end is still to come.
            if args.follow && fault["is_over"] == Value::Bool(false) {
                break;
            }
            show(fault, output, false)?;
            shown = fault["number"].as_u64().unwrap_or(shown);
        }
        if !args.follow {
            return Ok(());
        }
        pause();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no event to wait for: another process is looked at"
)]
fn pause() {
    std::thread::sleep(LOOK_EVERY);
}

fn show(fault: &Value, output: Output, in_full: bool) -> Result<()> {
    if output.json {
        output.value(fault)?;
        return Ok(());
    }
    output.line(&line(fault))?;
    if in_full && let Some(report) = fault["report"].as_str() {
        output.line(report)?;
    }
    Ok(())
}

/// `f3 hang in shared step, suspects r7 r9; gone 12 ms, up 40 ms, resumed 61 ms; 3 resumed, 0 failed`
fn line(fault: &Value) -> String {
    let text = |key: &str| fault[key].as_str().unwrap_or_default().to_owned();
    let mut line = format!("{} {} {}", text("id"), text("time"), text("kind"));
    if let Some(phase) = fault["phase"].as_str() {
        line.push_str(&format!(" in {phase}"));
    }
    line.push_str(&format!(": {}", text("message")));
    let suspects = fault["suspects"].as_array().into_iter().flatten();
    let suspects: Vec<&str> = suspects.filter_map(Value::as_str).collect();
    if !suspects.is_empty() {
        line.push_str(&format!("; suspects {}", suspects.join(" ")));
    }
    let timeline = fault.get("timeline");
    for (key, what) in [
        ("contained_ms", "contained"),
        ("engine_up_ms", "up"),
        ("resumed_ms", "resumed"),
    ] {
        if let Some(ms) = timeline.and_then(|times| times.get(key)?.as_u64()) {
            line.push_str(&format!("; {what} after {ms} ms"));
        }
    }
    for (key, what) in [
        ("requests_resumed", "resumed"),
        ("requests_failed", "failed"),
    ] {
        if let Some(count) = fault[key].as_u64().filter(|count| *count > 0) {
            line.push_str(&format!("; {count} {what}"));
        }
    }
    line
}
