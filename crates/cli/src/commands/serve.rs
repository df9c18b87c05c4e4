//! `relight serve`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use relight_protocol::limits;
use relight_server::{ApiKeys, ServerConfig};
use relight_supervisor::Bounds;

use crate::args::{ListenArgs, ServeArgs};
use crate::front::{self, Engines, FrontOptions};
use crate::logs::Logs;
use crate::output::Output;

/// Serves until a signal. Success means that nothing was cut short.
///
/// # Errors
/// If the model, the keys or the address cannot be had.
pub(crate) fn serve(args: ServeArgs, output: Output) -> anyhow::Result<ExitCode> {
    let logs = Logs::new(args.log, output.json);
    logs.start();
    for reason in args.without_effect() {
        output.note(&format!("no effect: {reason}"));
    }
    let keys = keys(&args.listen)?;
    let model = super::obtain(args.model.source().as_deref(), args.model.folder(), output)?;
    let engines = Engines {
        config: args.engine.config(&model.path)?,
        environment: logs.environment(),
    };
    let slots = usize::from(engines.config.slots);
    let open_requests_max = match args.listen.max_queue {
        Some(waiting) => slots.saturating_add(waiting),
        None => limits::OPEN_REQUESTS_MAX,
    };
    let options = FrontOptions {
        engines,
        bounds: Bounds {
            open_requests_max,
            restarts_max: args.listen.max_restarts,
            hang_timeout_ms: args.listen.hang_timeout.saturating_mul(1000),
            ..Bounds::default()
        },
        server: ServerConfig {
            served_names: args.alias,
            api_keys: ApiKeys::new(keys),
            sse_keepalive: Duration::from_secs(args.listen.sse_keepalive),
            connections_max: connections_max(),
            ..ServerConfig::default()
        },
        address: (args.listen.host, args.listen.port).into(),
        drain: Duration::from_secs(args.listen.shutdown_timeout),
    };
    front::serve(options, output)
}

/// As many connections as there are descriptors for, beside those that the front itself needs.
fn connections_max() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = descriptors.and_then(|count| usize::try_from(count).ok());
    let free = descriptors.map(|count| count.saturating_sub(limits::DESCRIPTORS_RESERVED));
    free.unwrap_or(usize::MAX).clamp(1, limits::CONNECTIONS_MAX)
}

/// The keys that clients must send. Beyond loopback there must be some.
fn keys(listen: &ListenArgs) -> anyhow::Result<Vec<String>> {
    let mut keys = listen.api_key.clone();
    if let Some(file) = &listen.api_key_file {
        keys.extend(keys_in(file)?);
    }
    if keys.is_empty() && !listen.no_auth && !listen.host.is_loopback() {
        bail!(
            "{} can be reached from other machines: give --api-key, or --no-auth if that is meant",
            listen.host
        );
    }
    Ok(keys)
}

fn keys_in(file: &Path) -> anyhow::Result<Vec<String>> {
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
