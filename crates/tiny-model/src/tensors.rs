//! The tensors of each architecture and how far their weights spread.
//!
//! With rows of length n and weights of deviation g / sqrt(n), a product with a normalised
//! input has deviation g. The gains below keep attention peaked, and the residual stream
//! made mostly of what the layers add: where output and embedding are tied, a stream that
//! was mostly the embedding would repeat its token for ever. They were chosen by looking at
//! what llama.cpp continues with: 55 to 105 different tokens of 120 in greedy text.

use relight_gguf::GgmlType;

use crate::random::Random;
use crate::vocabulary::Vocabulary;
use crate::{Architecture, TinyModel, blocks};

/// Deviation of the logits.
pub(crate) const LOGIT_DEVIATION: f32 = 4.0;
/// Deviation of embedding rows that are not also the output's.
pub(crate) const EMBEDDING_DEVIATION: f32 = 0.5;
/// Rows of special tokens are shorter, so that these tokens are rarely chosen.
const SPECIAL_ROW_SCALE: f32 = 0.3;
pub(crate) const QUERY_KEY_GAIN: f32 = 1.5;
/// Mean weights of Gemma's norms on queries and keys, and how its two branches share the
/// residual stream. Its norm after attention undoes the averaging over keys, so that flat
/// attention would give every position the same content.
const QUERY_KEY_NORM: f32 = 2.5;
const ATTENTION_SHARE: f32 = 0.8;
const FEED_FORWARD_SHARE: f32 = 1.15;
pub(crate) const GATE_UP_GAIN: f32 = 1.5;
/// What attention and the gated product lose in deviation on average.
pub(crate) const BRANCH_GAIN: f32 = 1.5;
const BIAS_DEVIATION: f32 = 0.3;
/// Norm weights lie this far around their mean.
const NORM_REACH: f32 = 0.2;

#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) format: GgmlType,
    pub(crate) bytes: Vec<u8>,
}

/// Every tensor of the model, in the order of the file.
pub(crate) fn write(model: &TinyModel, vocabulary: &Vocabulary) -> Vec<Tensor> {
    let mut tensors = Tensors {
        model,
        list: Vec::new(),
    };
    let row_deviation = LOGIT_DEVIATION / (model.hidden as f32).sqrt();
    let embedding_deviation = match model.formats.output {
        None => row_deviation,
        Some(_) => EMBEDDING_DEVIATION,
    };
    let embedding = model.formats.embedding;
    tensors.token_rows("token_embd", embedding, embedding_deviation, vocabulary);
    for layer in 0..model.layers {
        tensors.layer(layer);
    }
    tensors.norm("output_norm", model.hidden, 1.0);
    if let Some(output) = model.formats.output {
        tensors.token_rows("output", output, row_deviation, vocabulary);
    }
    if model.rope_factors && model.architecture == Architecture::Llama {
        tensors.rope_factors();
    }
    tensors.list
}

struct Tensors<'a> {
    model: &'a TinyModel,
    list: Vec<Tensor>,
}

impl Tensors<'_> {
    fn layer(&mut self, layer: u32) {
        let TinyModel {
            architecture,
            formats,
            hidden,
            feed_forward,
            ..
        } = *self.model;
        let query_width = self.model.heads * self.model.head_size;
        let key_width = self.model.kv_heads * self.model.head_size;
        let branch = self.branch_deviation();
        let gemma = architecture == Architecture::Gemma3;
        let name = |part: &str| format!("blk.{layer}.{part}");

        self.norm(&name("attn_norm"), hidden, 1.0);
        let format = formats.query_key;
        self.matrix(
            &name("attn_q"),
            (hidden, query_width),
            format,
            QUERY_KEY_GAIN,
        );
        self.matrix(&name("attn_k"), (hidden, key_width), format, QUERY_KEY_GAIN);
        self.matrix(&name("attn_v"), (hidden, key_width), formats.value, 1.0);
        if architecture == Architecture::Qwen2 {
            self.bias(&name("attn_q"), query_width);
            self.bias(&name("attn_k"), key_width);
            self.bias(&name("attn_v"), key_width);
        }
        if gemma {
            self.norm(&name("attn_q_norm"), self.model.head_size, QUERY_KEY_NORM);
            self.norm(&name("attn_k_norm"), self.model.head_size, QUERY_KEY_NORM);
        }
        let gain = if gemma { 1.0 } else { BRANCH_GAIN * branch };
        let format = formats.attention_output;
        self.matrix(&name("attn_output"), (query_width, hidden), format, gain);
        if gemma {
            self.norm(
                &name("post_attention_norm"),
                hidden,
                branch * ATTENTION_SHARE,
            );
        }

        self.norm(&name("ffn_norm"), hidden, 1.0);
        let format = formats.gate_up;
        self.matrix(
            &name("ffn_gate"),
            (hidden, feed_forward),
            format,
            GATE_UP_GAIN,
        );
        self.matrix(
            &name("ffn_up"),
            (hidden, feed_forward),
            format,
            GATE_UP_GAIN,
        );
        self.matrix(
            &name("ffn_down"),
            (feed_forward, hidden),
            formats.down,
            gain,
        );
        if gemma {
            self.norm(&name("post_ffw_norm"), hidden, branch * FEED_FORWARD_SHARE);
        }
    }

    /// Deviation of what one branch of a layer adds to the residual stream.
    ///
    /// A tied row e gives its own token the logit sqrt(hidden) * |e| * c, where c is the
    /// share of e in the stream; c = 1 / sqrt(hidden) keeps that within the other logits.
    /// Gemma multiplies embeddings by sqrt(hidden) on their way in.
    fn branch_deviation(&self) -> f32 {
        let branches = 2.0 * self.model.layers as f32;
        let mut stream = LOGIT_DEVIATION;
        if self.model.architecture == Architecture::Gemma3 {
            stream *= (self.model.hidden as f32).sqrt();
        }
        stream / branches.sqrt()
    }

    fn random(&self, name: &str) -> Random {
        Random::new(self.model.seed, name)
    }

    /// `(columns, rows)` of weights with this gain.
    fn matrix(&mut self, name: &str, shape: (u32, u32), format: GgmlType, gain: f32) {
        let (columns, rows) = shape;
        let deviation = gain / (columns as f32).sqrt();
        let mut random = self.random(name);
        let mut bytes = Vec::new();
        for _ in 0..rows {
            write_row(columns, format, deviation, &mut random, &mut bytes);
        }
        self.push(name, "weight", &[columns, rows], format, bytes);
    }

    /// One row of `hidden` weights per token.
    fn token_rows(
        &mut self,
        name: &str,
        format: GgmlType,
        deviation: f32,
        vocabulary: &Vocabulary,
    ) {
        let shape = [self.model.hidden, self.model.vocabulary];
        let mut random = self.random(name);
        let mut bytes = Vec::new();
        for token in 0..usize::try_from(self.model.vocabulary).unwrap_or(0) {
            let scale = if vocabulary.is_special(token) {
                SPECIAL_ROW_SCALE
            } else {
                1.0
            };
            write_row(shape[0], format, deviation * scale, &mut random, &mut bytes);
        }
        self.push(name, "weight", &shape, format, bytes);
    }

    fn norm(&mut self, name: &str, length: u32, mean: f32) {
        let mut random = self.random(name);
        let bytes = (0..length)
            .flat_map(|_| (mean * random.between(1.0 - NORM_REACH, 1.0 + NORM_REACH)).to_le_bytes())
            .collect();
        self.push(name, "weight", &[length], GgmlType::F32, bytes);
    }

    fn bias(&mut self, name: &str, length: u32) {
        let mut random = self.random(&format!("{name}.bias"));
        let mut bytes = Vec::new();
        write_row(
            length,
            GgmlType::F32,
            BIAS_DEVIATION,
            &mut random,
            &mut bytes,
        );
        self.push(name, "bias", &[length], GgmlType::F32, bytes);
    }

    /// Divisors of the rotary frequencies: from 1 for the fastest to 8 for the slowest.
    fn rope_factors(&mut self) {
        let pairs = self.model.head_size / 2;
        let bytes = (0..pairs)
            .flat_map(|pair| (1.0 + 7.0 * pair as f32 / pairs as f32).to_le_bytes())
            .collect();
        self.push("rope_freqs", "weight", &[pairs], GgmlType::F32, bytes);
    }

    fn push(
        &mut self,
        name: &str,
        suffix: &str,
        dimensions: &[u32],
        format: GgmlType,
        bytes: Vec<u8>,
    ) {
        self.list.push(Tensor {
            name: format!("{name}.{suffix}"),
            dimensions: dimensions.iter().map(|length| u64::from(*length)).collect(),
            format,
            bytes,
        });
    }
}

pub(crate) fn write_row(
    columns: u32,
    format: GgmlType,
    deviation: f32,
    random: &mut Random,
    target: &mut Vec<u8>,
) {
    let block = u32::try_from(format.block_elements()).unwrap_or(1);
    assert!(
        columns.is_multiple_of(block),
        "rows of {columns} are no whole blocks of {format}"
    );
    for _ in 0..columns / block {
        blocks::write(format, deviation, random, target);
    }
}
