//! Flags of `relight run`.

use clap::Args;

use super::engine::{FolderArgs, ModelFlags};
use super::{EngineArgs, LogArgs};

/// Answer one prompt, or chat in the terminal.
#[derive(Debug, Args)]
#[command(override_usage = "relight run [OPTIONS] [MODEL] [PROMPT]...")]
pub(crate) struct RunArgs {
    /// The model, unless a flag names it, and then what to answer; without a prompt
    /// standard input is read, and a terminal starts a chat
    #[arg(value_name = "MODEL] [PROMPT")]
    words: Vec<String>,
    #[command(flatten)]
    model: ModelFlags,
    /// Message that says how to answer
    #[arg(long, visible_alias = "system-prompt", value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl RunArgs {
    /// The model that is meant, as the store reads it; `None` for the default one.
    pub(crate) fn source(&self) -> Option<String> {
        if self.model.are_given() {
            return self.model.source();
        }
        let first = self.words.first().cloned();
        first.or_else(|| self.model.source())
    }

    /// The prompt as one text.
    pub(crate) fn prompt(&self) -> Option<String> {
        let skipped = usize::from(!self.model.are_given());
        let words = self.words.get(skipped..).unwrap_or_default();
        (!words.is_empty()).then(|| words.join(" "))
    }

    pub(crate) fn folder(&self) -> &FolderArgs {
        &self.model.folder
    }
}

/// How tokens are chosen.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Tokens at most [default: as many as fit]
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "TOKENS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) predict: Option<u32>,
    /// 0 always takes the likeliest token
    #[arg(long, visible_alias = "temperature", default_value_t = 0.8)]
    pub(crate) temp: f32,
    /// Keep this many candidates; 0 keeps all
    #[arg(long, value_name = "COUNT", default_value_t = 40)]
    pub(crate) top_k: u32,
    /// Keep candidates that make up this much of the probability
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub(crate) top_p: f32,
    /// Keep candidates at least this likely, compared with the likeliest
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub(crate) min_p: f32,
    /// Makes tokens that were used less likely; 1 is off
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) repeat_penalty: f32,
    /// The same seed gives the same answer [default: another one each time]
    #[arg(short, long)]
    pub(crate) seed: Option<u64>,
}
