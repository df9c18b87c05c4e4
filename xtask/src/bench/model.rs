//! The models that are measured, and what a token of each costs at least.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::setup::MODELS;
use crate::synth;
use crate::terminal::output;
use crate::workspace::Workspace;

/// Random models that are measured when they are there (`cargo xtask synth`).
const SYNTHETIC: &[&str] = &[
    "1b-q4_k_m",
    "1b-q8_0",
    "1b-q4_0",
    "1b-q6_k",
    "8b-q4_k_m",
    "8b-q8_0",
    "8b-q4_0",
    "8b-q6_k",
];
/// Gemma 3 has one layer that sees everything to five with a window.
const GEMMA_PERIOD: f64 = 6.0;
const F16_BYTES: f64 = 2.0;

/// What goals depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    SmolLm2,
    Gemma3,
    OneB,
    EightB,
}

impl Family {
    pub(super) fn is_large(self) -> bool {
        matches!(self, Self::OneB | Self::EightB)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) family: Family,
    /// The file's name, which names the model in tables.
    pub(super) file: String,
    pub(super) path: PathBuf,
    /// Bytes of weights that every token reads.
    pub(super) weight_bytes: f64,
    /// Products of a token with the weights of all layers, and with the output matrix.
    pub(super) layer_products: f64,
    pub(super) head_products: f64,
    /// Bytes of keys and values per token that all layers keep, and those with a window of
    /// so many tokens.
    full_kv_bytes: f64,
    windowed_kv_bytes: f64,
    window: f64,
}

impl Model {
    /// Bytes of keys and values that a token reads behind so many others.
    pub(super) fn kv_bytes(&self, context: usize) -> f64 {
        let context = context as f64;
        self.full_kv_bytes * context + self.windowed_kv_bytes * context.min(self.window)
    }

    /// Bytes that one more token of a long context adds to what each token reads.
    pub(super) fn kv_slope(&self) -> f64 {
        self.full_kv_bytes
    }

    /// Whether some layers see only the latest tokens.
    pub(super) fn has_window(&self) -> bool {
        self.windowed_kv_bytes > 0.0
    }

    /// The name without what all files share, for file names and charts.
    pub(super) fn short(&self) -> &str {
        match self.family {
            Family::SmolLm2 => "smollm2",
            Family::Gemma3 => "gemma3",
            Family::OneB | Family::EightB => self
                .file
                .trim_start_matches("synth-")
                .trim_end_matches(".gguf"),
        }
    }

    fn read(family: Family, path: PathBuf, relight: &Path) -> Result<Self> {
        let mut inspect = Command::new(relight);
        let text = output(inspect.args(["inspect", "--json"]).arg(&path))?;
        let table: Value = serde_json::from_str(&text).context("inspect prints no JSON")?;
        let sizes = Sizes::read(&table)?;
        let name = path.file_name().unwrap_or_default();
        let architecture = text_of(&table, "general.architecture")?;
        let number = |suffix: &str| {
            let key = format!("{architecture}.{suffix}");
            let value = table.pointer(&format!("/metadata/{key}/value"));
            value
                .and_then(Value::as_f64)
                .with_context(|| format!("no {key}"))
        };
        let heads = number("attention.head_count_kv")?;
        let head_size = number("attention.key_length").or_else(|_absent| {
            Ok::<_, anyhow::Error>(number("embedding_length")? / number("attention.head_count")?)
        })?;
        let layer = 2.0 * heads * head_size * F16_BYTES;
        let layers = number("block_count")?;
        let full = match family {
            Family::Gemma3 => (layers / GEMMA_PERIOD).floor(),
            Family::SmolLm2 | Family::OneB | Family::EightB => layers,
        };
        let window = number("attention.sliding_window").unwrap_or_default();
        Ok(Self {
            family,
            file: name.to_string_lossy().into_owned(),
            path,
            weight_bytes: sizes.bytes,
            layer_products: sizes.layer_products,
            head_products: sizes.head_products,
            full_kv_bytes: layer * full,
            windowed_kv_bytes: layer * (layers - full),
            window,
        })
    }
}

fn text_of(table: &Value, key: &str) -> Result<String> {
    let value = table.pointer(&format!("/metadata/{key}/value"));
    let text = value.and_then(Value::as_str);
    Ok(text.with_context(|| format!("no {key}"))?.to_owned())
}

/// Sums over a file's tensors.
#[derive(Default)]
struct Sizes {
    bytes: f64,
    layer_products: f64,
    head_products: f64,
}

impl Sizes {
    fn read(table: &Value) -> Result<Self> {
        let tensors = table.pointer("/tensors").and_then(Value::as_array);
        let tensors = tensors.context("inspect lists no tensors")?;
        let name = |tensor: &Value| {
            tensor
                .get("name")
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let untied = tensors
            .iter()
            .any(|tensor| name(tensor).as_deref() == Some("output.weight"));
        let mut sizes = Self::default();
        for tensor in tensors {
            let name = name(tensor).context("a tensor has no name")?;
            let is_embedding = name == "token_embd.weight";
            if is_embedding && untied {
                continue;
            }
            let bytes = tensor.get("bytes").and_then(Value::as_f64);
            sizes.bytes += bytes.with_context(|| format!("{name} has no size"))?;
            let dimensions = tensor.get("dimensions").and_then(Value::as_array);
            let dimensions: Vec<f64> = dimensions
                .into_iter()
                .flatten()
                .flat_map(Value::as_f64)
                .collect();
            if let [columns, rows] = dimensions.as_slice() {
                let target = if is_embedding || name == "output.weight" {
                    &mut sizes.head_products
                } else {
                    &mut sizes.layer_products
                };
                *target += columns * rows;
            }
        }
        ensure!(sizes.layer_products > 0.0, "the file has no matrices");
        Ok(sizes)
    }
}

/// The models that are there and whose file contains one of `parts`, or all; says which of
/// the named ones are not there.
pub(super) fn select(
    workspace: &Workspace,
    relight: &Path,
    parts: &[String],
) -> Result<Vec<Model>> {
    let real = MODELS.iter().zip([Family::SmolLm2, Family::Gemma3]);
    let real = real.map(|(model, family)| (family, model.file.to_owned()));
    let synthetic = SYNTHETIC.iter().map(|name| {
        let family = if name.starts_with('8') {
            Family::EightB
        } else {
            Family::OneB
        };
        (family, synth::file_name(name))
    });
    let mut models = Vec::new();
    for (family, file) in real.chain(synthetic) {
        let path = workspace.path("models").join(&file);
        let is_wanted = parts.is_empty() || parts.iter().any(|part| file.contains(part.as_str()));
        if is_wanted && path.is_file() {
            models.push(Model::read(family, path, relight)?);
        } else if is_wanted && !parts.is_empty() {
            println!("without {file}: `cargo xtask synth` writes it");
        }
    }
    ensure!(!models.is_empty(), "no model is called that");
    Ok(models)
}
