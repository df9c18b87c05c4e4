//! Flags of `inject`, which builds for tests have.

use clap::Args;

/// Order a fault in a running server.
#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// Where: load, command, prepare, admit, sample, detokenize, emit, shared, confirm, logits,
    /// pipe, handler or stream
    pub(crate) place: String,
    /// What: panic, error, abort, kill, segfault, stack-overflow, exhaust, exit, hang, pause,
    /// non-finite, garbage, cut, wrong-id, repeat or skip
    pub(crate) blow: String,
    /// Only for requests with this text in their prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) marker: Option<String>,
    /// Let this many passes through first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) skip: u64,
    /// Strike with this chance in a million at each pass
    #[arg(long, value_name = "N")]
    pub(crate) per_million: Option<u32>,
    /// Seed of the chance
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Strike so often in one process [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "always")]
    pub(crate) times: Option<u32>,
    /// Strike every time
    #[arg(long)]
    pub(crate) always: bool,
    /// Order it in engines that start later too
    #[arg(long)]
    pub(crate) every_engine: bool,
    #[command(flatten)]
    pub(crate) server: super::ServerArgs,
}
