//! What can be typed. Flags keep llama-server's short names and meanings, with vLLM's long
//! names as aliases; a flag that is understood and has no effect says so at start.

mod engine;
mod short;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use engine::{EngineArguments, ModelArguments};
pub(crate) use short::normalised;

/// An LLM server that relights its engine in flight.
#[derive(Debug, Parser)]
#[command(name = "relight", version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) logs: LogArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model over HTTP; the default when no command is given.
    Serve(ServeArguments),
    /// Answer a prompt, standard input, or a conversation on the terminal.
    Run(RunArguments),
    /// The disposable process; started by the others.
    #[command(hide = true)]
    Engine,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LogArguments {
    /// Least severity that is written to standard error.
    #[arg(long, global = true, value_enum, default_value = "info")]
    pub(crate) log_level: LogLevel,
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1", env = "LLAMA_ARG_HOST")]
    pub(crate) host: String,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8080, env = "LLAMA_ARG_PORT")]
    pub(crate) port: u16,
    /// Name of the model for clients; repeatable, the first is the one in answers.
    #[arg(
        short = 'a',
        long,
        visible_alias = "served-model-name",
        env = "LLAMA_ARG_ALIAS"
    )]
    pub(crate) alias: Vec<String>,
    /// Key that clients must send; repeatable.
    #[arg(long, env = "LLAMA_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Vec<String>,
    /// File with one key per line.
    #[arg(long)]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Serve without keys beyond loopback.
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Requests that may wait while the engine is full or down.
    #[arg(long, default_value_t = relight_protocol::limits::QUEUE_REQUESTS_MAX)]
    pub(crate) max_queue: usize,
    /// Seconds that running requests get after a signal to stop.
    #[arg(long, default_value_t = 30)]
    pub(crate) shutdown_timeout: u64,
    /// Seconds of silence after which a stream gets a comment.
    #[arg(long, visible_alias = "sse-ping-interval", default_value_t = 10)]
    pub(crate) sse_keepalive: u64,
    #[command(flatten)]
    pub(crate) inert: InertArguments,
}

/// Flags of other servers that change nothing here.
#[derive(Debug, Args)]
pub(crate) struct InertArguments {
    /// Without effect: there is no other template engine.
    #[arg(long)]
    pub(crate) jinja: bool,
    /// Without effect: metrics are always served.
    #[arg(long)]
    pub(crate) metrics: bool,
    /// Without effect: there is no web interface yet.
    #[arg(long, visible_alias = "no-webui")]
    pub(crate) no_ui: bool,
}

impl InertArguments {
    /// The flags that were given, with the reason why they do nothing.
    pub(crate) fn given(&self) -> Vec<(&'static str, &'static str)> {
        let flags = [
            (
                self.jinja,
                "--jinja",
                "templates are always rendered with Jinja",
            ),
            (self.metrics, "--metrics", "metrics are always served"),
            (self.no_ui, "--no-ui", "there is no web interface"),
        ];
        let given = flags.into_iter().filter(|(given, ..)| *given);
        given.map(|(_, flag, reason)| (flag, reason)).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// What to answer; without it, standard input, or a conversation if that is a terminal.
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// First message of the conversation.
    #[arg(long, visible_alias = "system-prompt")]
    pub(crate) system: Option<String>,
    /// Most tokens of an answer.
    #[arg(short = 'n', long, visible_alias = "n-predict")]
    pub(crate) max_tokens: Option<u32>,
    /// 0 always takes the likeliest token.
    #[arg(long, visible_alias = "temperature", default_value_t = 0.8)]
    pub(crate) temp: f32,
    #[arg(long, default_value_t = 0.95)]
    pub(crate) top_p: f32,
    #[arg(long, default_value_t = 40)]
    pub(crate) top_k: u32,
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f32,
    #[arg(long, visible_alias = "repetition-penalty", default_value_t = 1.0)]
    pub(crate) repeat_penalty: f32,
    /// Equal seeds give equal answers.
    #[arg(short = 's', long)]
    pub(crate) seed: Option<u64>,
}

/// Whether an address can only be reached from this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
