//! From a model file to an engine that can serve it. The weights are repacked into their
//! arena once; an engine that finds them there maps them and is ready in milliseconds.

mod card;
mod memory;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use relight_gguf::{Gguf, GgufError};
use relight_kernels::{Kernels, Pool, UnsupportedIsa};
use relight_model::forward::{Model, Processor};
use relight_model::spec::{ArchError, Spec};
use relight_model::text::TextError;
use relight_model::weights::{WeightsPlan, WrongArena};
use relight_protocol::limits::{PAGE_TOKENS, SLOTS_MAX};
use relight_protocol::{EngineConfig, Fault, Isa, KvType, ModelCard, Speculation};
use sha2::{Digest, Sha256};

use crate::arena::{ArenaError, ArenaFiles, KvArena, ModelFile, SealedWeights, WeightsArena};
use crate::cpu::CpuBackend;
use crate::language::Language;
use crate::pages::TableShape;
use crate::scheduler::{Drafting, SchedulerConfig};

/// Raised whenever the arithmetic changes: part of every fingerprint.
const ARITHMETIC: &[u8] = b"relight arithmetic 1";

/// The share of the memory that is free at load which pages may take if nobody says how many.
const PAGES_MEMORY_DIVISOR: u64 = 4;

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error(transparent)]
    File(#[from] GgufError),
    #[error(transparent)]
    Architecture(#[from] ArchError),
    #[error(transparent)]
    Text(#[from] TextError),
    #[error(transparent)]
    Isa(#[from] UnsupportedIsa),
    #[error(transparent)]
    WrongArena(#[from] WrongArena),
    #[error("the file names {tokens} tokens, but has embeddings for {embeddings}")]
    Vocabulary { tokens: usize, embeddings: usize },
    #[error("there is no memory for a single page of {page_bytes} bytes")]
    NoPages { page_bytes: usize },
    #[error("an internal error while the model was loaded")]
    Panicked,
}

impl LoadError {
    /// As the other side is told, causes included.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Fault::ModelInvalid { message }
    }
}

/// A model that is ready to serve.
#[derive(Debug)]
pub struct Loaded {
    pub language: Language,
    pub backend: CpuBackend,
    pub scheduler: SchedulerConfig,
    /// All but the time it took.
    pub card: ModelCard,
}

/// Loads the model of `config` into `arenas`; `progress` is told (bytes done, bytes in all) of its tensors.
///
/// # Errors
/// Why the model cannot be served. A panic while loading is one of the reasons: the file is
/// not trusted.
pub fn load(
    config: &EngineConfig,
    arenas: ArenaFiles,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, LoadError> {
    // What was being built is dropped; the process ends after the error is reported.
    catch_unwind(AssertUnwindSafe(|| load_file(config, arenas, progress)))
        .unwrap_or(Err(LoadError::Panicked))
}

fn load_file(
    config: &EngineConfig,
    arenas: ArenaFiles,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, LoadError> {
    let file = ModelFile::open(&config.model_path)?;
    file.advise_sequential();
    let gguf = Gguf::parse(file.bytes())?;
    let spec = Spec::from_gguf(&gguf)?;
    let language = Language::from_gguf(gguf.metadata(), config.chat_template.as_deref())?;
    check_vocabulary(&language, &spec)?;
    let processor = Processor {
        kernels: kernels(config.isa)?,
        pool: Pool::new(threads(config.threads)),
    };
    let fingerprint = fingerprint(&file, &gguf, config.kv_type);
    let plan = WeightsPlan::new(&spec);
    let arena = WeightsArena::open(arenas.weights, fingerprint, plan.bytes())?;
    let weights = match arena {
        WeightsArena::Sealed(sealed) => sealed,
        WeightsArena::Fresh(mut fresh) => {
            let parts = (&spec, &gguf);
            plan.build(parts, fresh.tiles(), &processor.pool, &mut |built| {
                file.release(built.source);
                progress(built.done_bytes, built.total_bytes);
            })?;
            fresh.seal()?
        }
    };
    let model = Model::new(spec, weights, kv_type(config.kv_type))?;
    let page_bytes = model.kv_layout().page_bytes();
    let (kv, context_tokens) = open_pages(config, &model, (fingerprint, arenas.kv.as_ref()))?;
    let pages = kv.bytes() / page_bytes.max(1);
    let facts = card::Facts {
        fingerprint,
        context_tokens,
        slots: slots(config),
        pages,
        page_bytes,
        weights_bytes: plan.bytes(),
    };
    Ok(Loaded {
        card: card::describe(config, &gguf, &language, &model, (&processor, facts)),
        language,
        backend: CpuBackend::new(model, processor, kv),
        scheduler: SchedulerConfig {
            slots: slots(config),
            batch_rows: usize::try_from(config.batch_tokens).unwrap_or(usize::MAX),
            chunk_rows: usize::MAX,
            drafting: match config.speculation {
                Speculation::Off => Drafting::Never,
                Speculation::Ngram => Drafting::Adaptive,
            },
        },
    })
}

/// Every token id that a tokenizer can make must have an embedding. Embeddings beyond the
/// vocabulary are padding and are never drawn.
fn check_vocabulary(language: &Language, spec: &Spec) -> Result<(), LoadError> {
    let tokens = language.tokenizer().vocabulary_size();
    if tokens > spec.vocab_size {
        return Err(LoadError::Vocabulary {
            tokens,
            embeddings: spec.vocab_size,
        });
    }
    Ok(())
}

fn kernels(isa: Option<Isa>) -> Result<Kernels, UnsupportedIsa> {
    let isa = match isa {
        None => return Ok(Kernels::detect()),
        Some(Isa::Scalar) => relight_kernels::Isa::Scalar,
        Some(Isa::Avx2) => relight_kernels::Isa::Avx2,
        Some(Isa::AvxVnni) => relight_kernels::Isa::AvxVnni,
        Some(Isa::Avx512) => relight_kernels::Isa::Avx512,
        Some(Isa::Neon) => relight_kernels::Isa::Neon,
        Some(Isa::NeonDot) => relight_kernels::Isa::NeonDot,
    };
    Kernels::with_isa(isa)
}

fn kv_type(wish: KvType) -> relight_kernels::KvType {
    match wish {
        KvType::F16 => relight_kernels::KvType::F16,
        KvType::Bf16 => relight_kernels::KvType::Bf16,
        KvType::Q8_0 => relight_kernels::KvType::Q8_0,
    }
}

fn threads(wish: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    wish.map_or_else(cores, usize::from)
}

fn slots(config: &EngineConfig) -> usize {
    usize::from(config.slots).clamp(1, SLOTS_MAX)
}

/// Names the model cheaply: its metadata and table of tensors, length and time of change,
/// the arithmetic and what keys and values are kept as, but not every byte of its weights.
fn fingerprint(file: &ModelFile, gguf: &Gguf<'_>, kv_type: KvType) -> u128 {
    let bytes = file.bytes();
    let starts = gguf
        .tensors()
        .iter()
        .map(|tensor| tensor.data_range().start);
    let header = bytes.get(..starts.min().unwrap_or(bytes.len()));
    let mut hasher = Sha256::new();
    hasher.update(ARITHMETIC);
    hasher.update(kv_type.word());
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(file.modified_ns().to_le_bytes());
    hasher.update(header.unwrap_or_default());
    let digest: [u8; 32] = hasher.finalize().into();
    let name = digest.first_chunk::<16>();
    name.map_or(0, |name| u128::from_le_bytes(*name))
}

/// The pages, and the context that they allow.
fn open_pages(
    config: &EngineConfig,
    model: &Model<SealedWeights>,
    (fingerprint, file): (u128, Option<&File>),
) -> Result<(KvArena, u32), LoadError> {
    let page_bytes = model.kv_layout().page_bytes();
    let kept = match file {
        Some(file) => KvArena::page_count(file, page_bytes)?,
        None => None,
    };
    let trained = model.spec().context_length;
    let wish = config.context_tokens.map_or(trained, widen);
    if wish > trained {
        tracing::warn!(
            wish,
            trained,
            "the context is cut to what the model was trained for"
        );
    }
    let context = wish.clamp(2, trained.max(2));
    let pages = match (config.pages, kept) {
        (Some(pages), _) => widen(pages),
        (None, Some(pages)) => pages,
        (None, None) => {
            let wanted = slots(config) * context.div_ceil(PAGE_TOKENS);
            let share = memory::available_bytes() / PAGES_MEMORY_DIVISOR;
            let affordable = share / page_bytes.max(1) as u64;
            wanted.min(usize::try_from(affordable).unwrap_or(usize::MAX))
        }
    };
    if pages == 0 {
        return Err(LoadError::NoPages { page_bytes });
    }
    let shape = TableShape {
        model: fingerprint,
        page_bytes,
        page_count: pages,
    };
    let kv = KvArena::open(file, shape)?;
    let context = context.min(pages * PAGE_TOKENS);
    Ok((kv, u32::try_from(context).unwrap_or(u32::MAX)))
}

fn widen(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
