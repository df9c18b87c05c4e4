//! Files in the shapes of published models of one and eight billion weights, with random
//! weights: speed does not depend on what weights are. The vocabulary is another file's.
//! Tensors are written as they are made, for such a file need not fit memory.

use std::io::{self, Write};

use relight_gguf::{GgmlType, Metadata, Value, Writer, limits::ALIGNMENT_DEFAULT};

use crate::random::Random;
use crate::tensors::{self, BRANCH_GAIN, GATE_UP_GAIN, LOGIT_DEVIATION, QUERY_KEY_GAIN};
use crate::{Architecture, file_type};

/// Vocabulary of both shapes; names beyond the borrowed ones stand for nothing.
const VOCABULARY: usize = 128_256;
/// `tokenizer.ggml.token_type` of those.
const UNUSED: i32 = 5;
/// Rows of tokens that are no plain words are that much shorter, so that greedy text is words:
/// bytes that are no UTF-8 stop some servers.
const OTHER_ROW_SCALE: f32 = 0.2;
const SEED: u64 = 7;
/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 22;

/// A model that can be written: a shape and a mixture of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    shape: Shape,
    mixture: Mixture,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    name: &'static str,
    layers: u32,
    hidden: u32,
    feed_forward: u32,
    heads: u32,
    kv_heads: u32,
    head_size: u32,
    /// Whether the output is the embedding.
    tied: bool,
}

/// Llama 3.2 1B and Llama 3.1 8B, from their published configurations.
const SHAPES: [Shape; 2] = [
    Shape {
        name: "1b",
        layers: 16,
        hidden: 2048,
        feed_forward: 8192,
        heads: 32,
        kv_heads: 8,
        head_size: 64,
        tied: true,
    },
    Shape {
        name: "8b",
        layers: 32,
        hidden: 4096,
        feed_forward: 14336,
        heads: 32,
        kv_heads: 8,
        head_size: 128,
        tied: false,
    },
];

/// What llama.cpp's quantizer makes of each matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mixture {
    /// `Q4_K`, with `Q6_K` for the output and for every second value and down matrix.
    Q4KM,
    /// `Q4_0`, with a `Q6_K` output.
    Q4_0,
    Q6K,
    Q8_0,
}

const MIXTURES: [(&str, Mixture); 4] = [
    ("q4_k_m", Mixture::Q4KM),
    ("q4_0", Mixture::Q4_0),
    ("q6_k", Mixture::Q6K),
    ("q8_0", Mixture::Q8_0),
];

impl Mixture {
    fn base(self) -> GgmlType {
        match self {
            Self::Q4KM => GgmlType::Q4_K,
            Self::Q4_0 => GgmlType::Q4_0,
            Self::Q6K => GgmlType::Q6_K,
            Self::Q8_0 => GgmlType::Q8_0,
        }
    }

    fn output(self) -> GgmlType {
        match self {
            Self::Q8_0 => GgmlType::Q8_0,
            Self::Q4KM | Self::Q4_0 | Self::Q6K => GgmlType::Q6_K,
        }
    }

    /// The format of `attn_v` and `ffn_down`: in mixtures the first and last eighth of the
    /// layers and every third between them get more bits.
    fn sensitive(self, layer: u32, layers: u32) -> GgmlType {
        let eighth = layers / 8;
        let more =
            layer < eighth || layer >= 7 * layers / 8 || layer.saturating_sub(eighth) % 3 == 2;
        if self == Self::Q4KM && more {
            GgmlType::Q6_K
        } else {
            self.base()
        }
    }
}

/// One tensor, described before its bytes exist.
struct Plan {
    name: String,
    columns: u32,
    rows: u32,
    format: GgmlType,
    deviation: f32,
    per_token: bool,
}

impl Plan {
    fn bytes(&self) -> u64 {
        let row = self.format.row_bytes(u64::from(self.columns));
        row.unwrap_or_default() * u64::from(self.rows)
    }
}

impl Synthetic {
    /// The model called SHAPE-MIXTURE, as in `1b-q4_k_m`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (shape, mixture) = name.split_once('-')?;
        Some(Self {
            shape: SHAPES.into_iter().find(|known| known.name == shape)?,
            mixture: MIXTURES.into_iter().find(|known| known.0 == mixture)?.1,
        })
    }

    /// Every name that [`Synthetic::named`] knows.
    #[must_use]
    pub fn names() -> Vec<String> {
        let names = SHAPES.iter().flat_map(|shape| {
            MIXTURES
                .iter()
                .map(|(mixture, _)| format!("{}-{mixture}", shape.name))
        });
        names.collect()
    }

    /// Writes the file with the vocabulary of `lender`, a file of a `llama` with byte-level
    /// pieces.
    ///
    /// # Errors
    /// What `target` reports.
    pub fn write(&self, lender: &Metadata<'_>, target: &mut impl Write) -> io::Result<()> {
        let plans = self.plans();
        let mut writer = self.hyperparameters();
        let mut tokens = Vec::new();
        for (key, value) in lender
            .iter()
            .filter(|(key, _)| key.starts_with("tokenizer."))
        {
            let value = match key {
                "tokenizer.ggml.tokens" => {
                    tokens = vocabulary(&value);
                    tokens.clone().into()
                }
                "tokenizer.ggml.token_type" => token_types(&value).into(),
                _ => relight_gguf::writer::Value::from(value),
            };
            writer = writer.metadata(key, value);
        }
        for plan in &plans {
            let dimensions: &[u64] = match plan.format {
                GgmlType::F32 => &[u64::from(plan.columns)],
                _ => &[u64::from(plan.columns), u64::from(plan.rows)],
            };
            writer = writer.announce(&plan.name, dimensions, plan.format, plan.bytes());
        }
        let head = writer.head();
        drop(writer);
        target.write_all(&head)?;
        for plan in &plans {
            write_tensor(plan, &tokens, target)?;
        }
        Ok(())
    }

    fn hyperparameters(&self) -> Writer {
        let Shape { name, .. } = self.shape;
        let llama = |suffix: &str| format!("llama.{suffix}");
        Writer::new(3)
            .metadata("general.architecture", Architecture::Llama.name())
            .metadata("general.type", "model")
            .metadata("general.name", format!("Random {name}"))
            .metadata("general.quantization_version", 2_u32)
            .metadata("general.file_type", file_type(self.mixture.base()))
            .metadata(&llama("block_count"), self.shape.layers)
            .metadata(&llama("context_length"), 8192_u32)
            .metadata(&llama("embedding_length"), self.shape.hidden)
            .metadata(&llama("feed_forward_length"), self.shape.feed_forward)
            .metadata(&llama("attention.head_count"), self.shape.heads)
            .metadata(&llama("attention.head_count_kv"), self.shape.kv_heads)
            .metadata(&llama("attention.key_length"), self.shape.head_size)
            .metadata(&llama("attention.value_length"), self.shape.head_size)
            .metadata(&llama("attention.layer_norm_rms_epsilon"), 1e-5_f32)
            .metadata(&llama("rope.freq_base"), 500_000.0_f32)
            .metadata(&llama("rope.dimension_count"), self.shape.head_size)
            .metadata(
                &llama("vocab_size"),
                u32::try_from(VOCABULARY).unwrap_or(u32::MAX),
            )
    }

    fn plans(&self) -> Vec<Plan> {
        let Shape { hidden, tied, .. } = self.shape;
        let output = LOGIT_DEVIATION / (hidden as f32).sqrt();
        let rows = |name: &str, format, deviation| Plan {
            name: format!("{name}.weight"),
            columns: hidden,
            rows: u32::try_from(VOCABULARY).unwrap_or(u32::MAX),
            format,
            deviation,
            per_token: true,
        };
        let embedding = if tied {
            rows("token_embd", self.mixture.output(), output)
        } else {
            rows(
                "token_embd",
                self.mixture.base(),
                tensors::EMBEDDING_DEVIATION,
            )
        };
        let mut plans = vec![embedding, norm("output_norm", hidden)];
        if !tied {
            plans.push(rows("output", self.mixture.output(), output));
        }
        for layer in 0..self.shape.layers {
            plans.extend(self.layer(layer));
        }
        plans
    }

    fn layer(&self, layer: u32) -> Vec<Plan> {
        let shape = self.shape;
        let (queries, keys) = (
            shape.heads * shape.head_size,
            shape.kv_heads * shape.head_size,
        );
        let base = self.mixture.base();
        let sensitive = self.mixture.sensitive(layer, shape.layers);
        // What a branch adds to the residual stream, as in the small models.
        let branch = BRANCH_GAIN * LOGIT_DEVIATION / (2.0 * shape.layers as f32).sqrt();
        let matrix = |part: &str, (columns, rows): (u32, u32), format, gain: f32| Plan {
            name: format!("blk.{layer}.{part}.weight"),
            columns,
            rows,
            format,
            deviation: gain / (columns as f32).sqrt(),
            per_token: false,
        };
        let (hidden, wide) = (shape.hidden, shape.feed_forward);
        vec![
            norm(&format!("blk.{layer}.attn_norm"), hidden),
            matrix("attn_q", (hidden, queries), base, QUERY_KEY_GAIN),
            matrix("attn_k", (hidden, keys), base, QUERY_KEY_GAIN),
            matrix("attn_v", (hidden, keys), sensitive, 1.0),
            matrix("attn_output", (queries, hidden), base, branch),
            norm(&format!("blk.{layer}.ffn_norm"), hidden),
            matrix("ffn_gate", (hidden, wide), base, GATE_UP_GAIN),
            matrix("ffn_up", (hidden, wide), base, GATE_UP_GAIN),
            matrix("ffn_down", (wide, hidden), sensitive, branch),
        ]
    }
}

fn norm(name: &str, length: u32) -> Plan {
    Plan {
        name: format!("{name}.weight"),
        columns: length,
        rows: 1,
        format: GgmlType::F32,
        deviation: 0.0,
        per_token: false,
    }
}

/// The lender's tokens and as many unused ones as are missing.
fn vocabulary(lent: &Value<'_>) -> Vec<String> {
    let lent = lent.as_array().into_iter().flatten();
    let mut tokens: Vec<String> = lent
        .filter_map(|token| Some(token.as_str()?.to_owned()))
        .take(VOCABULARY)
        .collect();
    tokens.extend((tokens.len()..VOCABULARY).map(|index| format!("<|unused_{index}|>")));
    tokens
}

fn token_types(lent: &Value<'_>) -> Vec<i32> {
    let lent = lent.as_array().into_iter().flatten();
    let mut types: Vec<i32> = lent
        .filter_map(|kind| i32::try_from(kind.as_integer()?).ok())
        .collect();
    types.resize(VOCABULARY, UNUSED);
    types
}

/// Byte-level pieces write the space before a word as this.
fn is_word(token: &str) -> bool {
    token
        .strip_prefix('\u{120}')
        .is_some_and(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic()))
}

/// The tensor's blocks and the zeros up to the alignment.
fn write_tensor(plan: &Plan, tokens: &[String], target: &mut impl Write) -> io::Result<()> {
    if plan.format == GgmlType::F32 {
        let ones: Vec<u8> = (0..plan.columns)
            .flat_map(|_| 1.0_f32.to_le_bytes())
            .collect();
        return target.write_all(&ones);
    }
    let mut random = Random::new(SEED, &plan.name);
    let mut tokens = tokens.iter();
    let mut bytes = Vec::with_capacity(BUFFER_BYTES);
    for _ in 0..plan.rows {
        let is_other = plan.per_token && !tokens.next().is_some_and(|token| is_word(token));
        let scale = if is_other { OTHER_ROW_SCALE } else { 1.0 };
        let deviation = plan.deviation * scale;
        tensors::write_row(
            plan.columns,
            plan.format,
            deviation,
            &mut random,
            &mut bytes,
        );
        if bytes.len() >= BUFFER_BYTES {
            target.write_all(&bytes)?;
            bytes.clear();
        }
    }
    target.write_all(&bytes)?;
    let alignment = u64::from(ALIGNMENT_DEFAULT);
    let padding = plan.bytes().next_multiple_of(alignment) - plan.bytes();
    io::copy(&mut io::Read::take(io::repeat(0), padding), target)?;
    Ok(())
}

#[cfg(test)]
mod tests;
