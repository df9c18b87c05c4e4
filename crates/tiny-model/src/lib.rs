//! Random-weight model files for tests: every architecture and weight format that the
//! engine reads, in a few hundred kilobytes, equal for equal seeds. Keys and tensor names
//! are those that llama.cpp's converter writes.
//!
//! The weights are scaled so that logits spread as a trained model's do (standard deviation
//! about 4): greedy text varies, and the end token is rare.
//!
//! [`Synthetic`] makes large files in the same way, for measurements of speed.

mod blocks;
mod random;
mod synthetic;
mod tensors;
mod vocabulary;

pub use blocks::FORMATS;
use relight_gguf::{GgmlType, Writer};
pub use synthetic::Synthetic;

use crate::vocabulary::Vocabulary;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Rotary embedding over neighbouring pairs; a byte-level vocabulary, `smollm` rules.
    Llama,
    /// Biases on queries, keys and values; a byte-level vocabulary, `qwen2` rules.
    Qwen2,
    /// Norms on queries and keys, norms before and after each part, five layers with a
    /// sliding window to one without, tied embeddings; a SentencePiece vocabulary.
    Gemma3,
}

impl Architecture {
    /// `general.architecture`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Gemma3 => "gemma3",
        }
    }
}

/// Weight format of each class of matrices; one of [`FORMATS`]. Norms and biases are
/// always `F32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    pub embedding: GgmlType,
    pub query_key: GgmlType,
    pub value: GgmlType,
    pub attention_output: GgmlType,
    pub gate_up: GgmlType,
    pub down: GgmlType,
    /// `None` ties the output to the embedding.
    pub output: Option<GgmlType>,
}

impl Formats {
    /// One format for all, the output with a matrix of its own.
    #[must_use]
    pub fn uniform(format: GgmlType) -> Self {
        Self {
            embedding: format,
            query_key: format,
            value: format,
            attention_output: format,
            gate_up: format,
            down: format,
            output: Some(format),
        }
    }

    /// The mixture that is published as `Q4_K_M`. Rows must be multiples of 256.
    #[must_use]
    pub fn q4_k_m() -> Self {
        Self {
            value: GgmlType::Q6_K,
            down: GgmlType::Q6_K,
            output: Some(GgmlType::Q6_K),
            ..Self::uniform(GgmlType::Q4_K)
        }
    }
}

/// A model to be written. Rows of a matrix are `hidden`, `heads * head_size` or
/// `feed_forward` long and must be whole blocks of their format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TinyModel {
    pub architecture: Architecture,
    pub formats: Formats,
    pub layers: u32,
    pub hidden: u32,
    pub feed_forward: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_size: u32,
    /// Tokens; what cannot be learnt from the embedded text is padding.
    pub vocabulary: u32,
    /// Tokens that the file says the model was trained on.
    pub context: u32,
    /// Tokens that a windowed layer of `Gemma3` sees.
    pub sliding_window: u32,
    /// Frequency factors as Llama 3 has them; `Llama` only.
    pub rope_factors: bool,
    pub chat_template: bool,
    pub seed: u64,
}

impl TinyModel {
    /// Two layers of 128, grouped queries, `Q8_0`.
    #[must_use]
    pub fn llama() -> Self {
        Self {
            architecture: Architecture::Llama,
            formats: Formats::uniform(GgmlType::Q8_0),
            layers: 2,
            hidden: 128,
            feed_forward: 256,
            heads: 4,
            kv_heads: 2,
            head_size: 32,
            vocabulary: 640,
            context: 1024,
            sliding_window: 0,
            rope_factors: false,
            chat_template: true,
            seed: 1,
        }
    }

    /// As [`TinyModel::llama`], with biases.
    #[must_use]
    pub fn qwen2() -> Self {
        Self {
            architecture: Architecture::Qwen2,
            ..Self::llama()
        }
    }

    /// Six layers, the last of which sees everything; one head of keys for all; a window
    /// that ends inside a page.
    #[must_use]
    pub fn gemma3() -> Self {
        Self {
            architecture: Architecture::Gemma3,
            formats: Formats {
                output: None,
                ..Formats::uniform(GgmlType::Q8_0)
            },
            layers: 6,
            kv_heads: 1,
            sliding_window: 40,
            vocabulary: 768,
            ..Self::llama()
        }
    }

    /// The mixture of formats that most published files have, on a Llama of 256.
    #[must_use]
    pub fn q4_k_m() -> Self {
        Self {
            formats: Formats::q4_k_m(),
            hidden: 256,
            feed_forward: 512,
            heads: 8,
            ..Self::llama()
        }
    }

    /// The bytes of the file.
    ///
    /// # Panics
    /// If a row is not whole blocks, a format is not one of [`FORMATS`], or the vocabulary
    /// is too small for the tokens that every text needs.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let size = usize::try_from(self.vocabulary).unwrap_or(usize::MAX);
        let vocabulary = Vocabulary::new(self.architecture, size);
        let tensors = tensors::write(self, &vocabulary);
        let mut writer = vocabulary.write(self.hyperparameters(), self.chat_template);
        for tensor in tensors {
            let (name, dimensions) = (&tensor.name, &tensor.dimensions);
            writer = writer.tensor(name, dimensions, tensor.format, &tensor.bytes);
        }
        writer.finish()
    }

    fn hyperparameters(&self) -> Writer {
        let name = self.architecture.name();
        let key = |suffix: &str| format!("{name}.{suffix}");
        let gemma = self.architecture == Architecture::Gemma3;
        let frequency_base = match self.architecture {
            Architecture::Llama => 10_000.0_f32,
            Architecture::Qwen2 | Architecture::Gemma3 => 1_000_000.0,
        };
        let epsilon = if gemma { 1e-6_f32 } else { 1e-5 };
        let mut writer = Writer::new(3)
            .metadata("general.architecture", name)
            .metadata("general.type", "model")
            .metadata("general.name", format!("Tiny {name} {}", self.seed))
            .metadata("general.quantization_version", 2_u32)
            .metadata("general.file_type", file_type(self.formats.gate_up))
            .metadata(&key("block_count"), self.layers)
            .metadata(&key("context_length"), self.context)
            .metadata(&key("embedding_length"), self.hidden)
            .metadata(&key("feed_forward_length"), self.feed_forward)
            .metadata(&key("attention.head_count"), self.heads)
            .metadata(&key("attention.head_count_kv"), self.kv_heads)
            .metadata(&key("attention.key_length"), self.head_size)
            .metadata(&key("attention.value_length"), self.head_size)
            .metadata(&key("attention.layer_norm_rms_epsilon"), epsilon)
            .metadata(&key("rope.freq_base"), frequency_base)
            .metadata(&key("vocab_size"), self.vocabulary);
        if gemma {
            writer = writer.metadata(&key("attention.sliding_window"), self.sliding_window);
        } else {
            writer = writer.metadata(&key("rope.dimension_count"), self.head_size);
        }
        writer
    }
}

/// llama.cpp's number for files that are mostly of one format.
fn file_type(format: GgmlType) -> u32 {
    match format {
        GgmlType::F16 => 1,
        GgmlType::Q4_0 => 2,
        GgmlType::Q4_1 => 3,
        GgmlType::Q8_0 => 7,
        GgmlType::Q5_0 => 8,
        GgmlType::Q5_1 => 9,
        GgmlType::Q4_K => 15,
        GgmlType::Q5_K => 17,
        GgmlType::Q6_K => 18,
        GgmlType::BF16 => 32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
