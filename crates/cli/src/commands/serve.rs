//! `relight serve`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use relight_protocol::limits;
use relight_server::{ApiKeys, ServerConfig};
use relight_supervisor::Bounds;

use crate::args::{self, ServeArguments};
use crate::front::{self, FrontOptions};

/// Serves until a signal.
///
/// # Errors
/// If the model, the keys or the address cannot be had.
pub(crate) fn run(arguments: ServeArguments) -> Result<ExitCode> {
    for (flag, reason) in arguments
        .inert
        .given()
        .into_iter()
        .chain(arguments.engine.inert())
    {
        tracing::info!("{flag} has no effect: {reason}");
    }
    let keys = keys(&arguments)?;
    let model = super::model_file(&arguments.model)?;
    let template = super::template(arguments.engine.chat_template_file.as_deref())?;
    let options = FrontOptions {
        engine: arguments.engine.config(model, template),
        bounds: Bounds {
            queue_requests_max: arguments.max_queue.min(limits::QUEUE_REQUESTS_MAX),
            ..Bounds::default()
        },
        server: ServerConfig {
            served_names: arguments.alias,
            api_keys: ApiKeys::new(keys),
            sse_keepalive: Duration::from_secs(arguments.sse_keepalive.max(1)),
            ..ServerConfig::default()
        },
        host: arguments.host,
        port: arguments.port,
        drain: Duration::from_secs(arguments.shutdown_timeout),
    };
    front::serve(options, &mut std::io::stdout().lock())
}

/// The keys that clients must send. Beyond loopback there must be some.
fn keys(arguments: &ServeArguments) -> Result<Vec<String>> {
    let mut keys = arguments.api_key.clone();
    if let Some(file) = &arguments.api_key_file {
        keys.extend(keys_in(file)?);
    }
    let open = keys.is_empty() && !arguments.no_auth;
    if open && !args::is_loopback(&arguments.host) {
        bail!(
            "{} can be reached from other machines: give --api-key, or --no-auth if that is meant",
            arguments.host
        );
    }
    Ok(keys)
}

fn keys_in(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the keys in {}", file.display()))?;
    let lines = text.lines().map(str::trim);
    let keys: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(String::from)
        .collect();
    if keys.is_empty() {
        bail!("{} holds no key", file.display());
    }
    Ok(keys)
}
