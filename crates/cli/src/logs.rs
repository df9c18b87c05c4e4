//! Where diagnostics go: standard error, so that standard output holds results only.

mod standard_error;

use std::ffi::OsString;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use self::standard_error::StandardError;
use crate::args::{LogArgs, LogFormat, LogLevel};

/// Filter for all processes; wins over `--log-level`.
const FILTER: &str = "RELIGHT_LOG";
/// How the front tells its engines the form of their lines.
const FORMAT: &str = "RELIGHT_LOG_FORMAT";

/// What is logged, and how.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    filter: String,
    format: LogFormat,
}

impl Logs {
    /// From the command line of the front.
    pub(crate) fn new(arguments: LogArgs, json: bool) -> Self {
        let level = match arguments.log_level {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        };
        let usual = if json {
            LogFormat::Json
        } else {
            LogFormat::Text
        };
        Self {
            filter: std::env::var(FILTER).unwrap_or_else(|_unset| level.to_owned()),
            format: arguments.log_format.unwrap_or(usual),
        }
    }

    /// As the front told this engine.
    pub(crate) fn inherited() -> Self {
        let json = std::env::var(FORMAT).is_ok_and(|format| format == "json");
        Self {
            filter: std::env::var(FILTER).unwrap_or_else(|_unset| "info".to_owned()),
            format: if json {
                LogFormat::Json
            } else {
                LogFormat::Text
            },
        }
    }

    /// What an engine needs to log in the same way.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let format = match self.format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        vec![
            (FILTER.into(), (&self.filter).into()),
            (FORMAT.into(), format.into()),
        ]
    }

    /// Starts logging for the life of the process.
    pub(crate) fn start(&self) {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&self.filter))
            .with_writer(|| StandardError)
            .with_target(false)
            .with_ansi(terminal);
        // An error means that a logger is there already, which is what was wanted.
        match self.format {
            LogFormat::Text => drop(builder.without_time().try_init()),
            LogFormat::Json => drop(builder.json().try_init()),
        }
    }
}
