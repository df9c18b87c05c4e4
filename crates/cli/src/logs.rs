//! Where diagnostics go: standard error, so that standard output holds results only.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::{LogArguments, LogFormat};

/// Starts logging for the life of the process.
pub(crate) fn start(arguments: &LogArguments) {
    let level = arguments.log_level.word();
    let filter =
        EnvFilter::try_from_env("RELIGHT_LOG").unwrap_or_else(|_unset| EnvFilter::new(level));
    let terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(terminal);
    // An error means that a logger is there already, which is what was wanted.
    match arguments.log_format {
        LogFormat::Text => drop(builder.without_time().try_init()),
        LogFormat::Json => drop(builder.json().try_init()),
    }
}
