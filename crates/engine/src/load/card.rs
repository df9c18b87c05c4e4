//! What is loaded, in words.

use relight_gguf::{Gguf, Optional};
use relight_model::forward::{Model, Processor};
use relight_protocol::{EngineConfig, ModelCard};

use crate::arena::SealedWeights;
use crate::language::Language;

/// Sizes that were decided while loading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) fingerprint: u128,
    pub(super) context_tokens: u32,
    pub(super) slots: usize,
    pub(super) pages: usize,
    pub(super) page_bytes: usize,
    pub(super) weights_bytes: usize,
}

pub(super) fn describe(
    config: &EngineConfig,
    gguf: &Gguf<'_>,
    language: &Language,
    model: &Model<SealedWeights>,
    (processor, facts): (&Processor, Facts),
) -> ModelCard {
    let spec = model.spec();
    ModelCard {
        name: name(config, gguf),
        architecture: spec.architecture.clone(),
        quantization: quantization(gguf),
        fingerprint: facts.fingerprint,
        parameters: spec.parameter_count(),
        vocabulary: narrow(spec.vocab_size),
        context_tokens: facts.context_tokens,
        context_tokens_trained: narrow(spec.context_length),
        slots: u16::try_from(facts.slots).unwrap_or(u16::MAX),
        pages: narrow(facts.pages),
        page_bytes: facts.page_bytes as u64,
        kv_type: config.kv_type,
        weights_bytes: facts.weights_bytes as u64,
        threads: u16::try_from(processor.pool.threads()).unwrap_or(u16::MAX),
        kernels: kernels(config, processor),
        speculation: config.speculation,
        has_chat_template: language.template().is_ok(),
        load_ms: 0,
    }
}

fn name(config: &EngineConfig, gguf: &Gguf<'_>) -> String {
    let stored = gguf.metadata().str("general.name").optional();
    let stem = || {
        let stem = config.model_path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    };
    match stored {
        Ok(Some(name)) if !name.trim().is_empty() => name.trim().to_owned(),
        Ok(_) | Err(_) => stem(),
    }
}

/// `general.file_type` by its usual name, or the type that most bytes of the file have.
fn quantization(gguf: &Gguf<'_>) -> String {
    let file_type = gguf.metadata().u32("general.file_type").optional();
    let known = match file_type {
        Ok(Some(number)) => file_type_name(number),
        Ok(None) | Err(_) => None,
    };
    known.unwrap_or_else(|| main_type(gguf)).to_owned()
}

fn main_type(gguf: &Gguf<'_>) -> &'static str {
    let mut sums: Vec<(&'static str, usize)> = Vec::new();
    for tensor in gguf.tensors() {
        let name = tensor.ggml_type().name();
        let bytes = tensor.data_range().len();
        match sums.iter_mut().find(|(known, _sum)| *known == name) {
            Some((_name, sum)) => *sum += bytes,
            None => sums.push((name, bytes)),
        }
    }
    let largest = sums.into_iter().max_by_key(|(_name, sum)| *sum);
    largest.map_or("unknown", |(name, _sum)| name)
}

/// The numbers of `llama_ftype` in llama.h.
fn file_type_name(number: u32) -> Option<&'static str> {
    Some(match number {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        32 => "BF16",
        _ => return None,
    })
}

/// The tier, and why it is the slow one if nobody asked for that.
fn kernels(config: &EngineConfig, processor: &Processor) -> String {
    let isa = processor.kernels.isa();
    let is_wish = config.isa.is_some();
    if isa == relight_kernels::Isa::Scalar && !is_wish {
        return "scalar (this processor has none of the vector instructions we use)".to_owned();
    }
    isa.name().to_owned()
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
