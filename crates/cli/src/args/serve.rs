//! Flags of `relight serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use relight_protocol::limits::{
    HANG_TIMEOUT_MS, HANG_TIMEOUT_MS_MAX, RESTARTS_CEILING, RESTARTS_MAX,
};

use super::{EngineArgs, ModelArgs};

/// Serve a model over HTTP.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Name of the model for clients; the first is the one that answers carry
    #[arg(short, long, visible_alias = "served-model-name", value_name = "NAME")]
    #[arg(env = "LLAMA_ARG_ALIAS", value_delimiter = ',')]
    pub(crate) alias: Vec<String>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    inert: InertServeArgs,
}

/// Where to listen, for whom, and how patiently.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ListenArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", env = "LLAMA_ARG_HOST")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080, env = "LLAMA_ARG_PORT")]
    pub(crate) port: u16,
    /// Key that clients must send; repeatable
    #[arg(
        long,
        value_name = "KEY",
        env = "LLAMA_API_KEY",
        hide_env_values = true
    )]
    #[arg(value_delimiter = ',')]
    pub(crate) api_key: Vec<String>,
    /// File with one key per line
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Listen beyond this machine without a key
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Requests that wait when all slots are busy
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_queue: Option<usize>,
    /// Seconds of silence on a stream after which a comment is sent
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(visible_alias = "sse-ping-interval")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) sse_keepalive: u64,
    /// Seconds that open requests may go on after the signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=86400))]
    pub(crate) shutdown_timeout: u64,
    /// Seconds that the engine may be at one thing beyond ten times what that should take
    #[arg(long, value_name = "SECONDS", default_value_t = HANG_TIMEOUT_MS / 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=HANG_TIMEOUT_MS_MAX / 1000))]
    pub(crate) hang_timeout: u64,
    /// Engines that may die within a minute before the model counts as failed
    #[arg(long, value_name = "COUNT", default_value_t = RESTARTS_MAX)]
    #[arg(value_parser = restarts)]
    pub(crate) max_restarts: usize,
}

fn restarts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=RESTARTS_CEILING) => Ok(count),
        _ => Err(format!("must be from 1 to {RESTARTS_CEILING}")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArgs {
    /// Least serious messages that are logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LogLevel,
    /// Form of log lines [default: text, or json with --json]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// Flags of llama-server that are understood and change nothing here.
#[derive(Debug, Args)]
struct InertServeArgs {
    /// No effect here
    #[arg(long, hide = true, env = "LLAMA_ARG_ENDPOINT_METRICS")]
    #[arg(value_parser = FalseyValueParser::new())]
    metrics: bool,
    /// No effect here
    #[arg(long, hide = true, env = "LLAMA_ARG_ENDPOINT_SLOTS")]
    #[arg(value_parser = FalseyValueParser::new())]
    slots: bool,
    /// No effect here
    #[arg(long, hide = true, visible_alias = "no-webui")]
    no_ui: bool,
    /// No effect here
    #[arg(long, hide = true, value_name = "KEY")]
    admin_key: Option<String>,
    /// No effect here
    #[arg(long, hide = true, value_name = "FORMAT")]
    reasoning_format: Option<String>,
    /// No effect here
    #[arg(short = 'n', long, hide = true, value_name = "TOKENS")]
    #[arg(visible_alias = "n-predict", env = "LLAMA_ARG_N_PREDICT")]
    #[arg(allow_negative_numbers = true)]
    predict: Option<i64>,
    /// No effect here
    #[arg(short, long, hide = true, allow_negative_numbers = true)]
    seed: Option<i64>,
    /// No effect here
    #[arg(long, hide = true, visible_alias = "temperature")]
    temp: Option<f32>,
}

impl ServeArgs {
    /// What was asked for and has no effect, each with its reason.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let inert = &self.inert;
        let given = [
            (inert.metrics, "--metrics: /metrics is always there"),
            (inert.slots, "--slots: there is no /slots"),
            (inert.no_ui, "--no-ui: there is no user interface yet"),
            (
                inert.admin_key.is_some(),
                "--admin-key: there is nothing to administer over HTTP yet",
            ),
            (
                inert.reasoning_format.is_some(),
                "--reasoning-format: reasoning stays in the text",
            ),
            (
                inert.predict.is_some(),
                "--predict: each request says so itself",
            ),
            (inert.seed.is_some(), "--seed: each request says so itself"),
            (inert.temp.is_some(), "--temp: each request says so itself"),
        ];
        let given = given.into_iter().filter(|(given, _)| *given);
        let mut reasons = self.engine.without_effect();
        reasons.extend(given.map(|(_, reason)| reason));
        reasons
    }
}
