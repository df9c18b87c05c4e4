//! Flags of the commands that look at a running server.

use clap::{Args, Subcommand};

/// Which server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    #[arg(env = "RELIGHT_URL")]
    pub(crate) url: String,
    /// Key that the server asks for
    #[arg(
        long,
        value_name = "KEY",
        env = "LLAMA_API_KEY",
        hide_env_values = true
    )]
    pub(crate) api_key: Option<String>,
}

/// Show what went wrong in a running server.
#[derive(Debug, Args)]
pub(crate) struct FaultsArgs {
    /// Only this fault, with its report
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Go on and show faults as they come
    #[arg(short, long, conflicts_with = "id")]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Requests that are refused because they have killed engines.
#[derive(Debug, Args)]
pub(crate) struct QuarantineArgs {
    #[command(subcommand)]
    pub(crate) action: QuarantineAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineAction {
    /// Show them
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Let them in again
    Lift {
        /// Fingerprint from `quarantine list`
        #[arg(value_name = "FINGERPRINT", required_unless_present = "all")]
        fingerprint: Option<String>,
        /// All of them
        #[arg(long, conflicts_with = "fingerprint")]
        all: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}
