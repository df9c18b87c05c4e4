//! Logits of other implementations that the tests compare with; `oracle/README.md` at the
//! root of the repository says how they were recorded.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The tiny random models under `oracle/tiny`.
pub(crate) const TINY: [&str; 7] = [
    "gemma3-linear",
    "gemma3-window",
    "llama-gqa",
    "llama-linear",
    "llama-rope3",
    "qwen2-seven",
    "qwen2-untied",
];

/// Furthest logit, in standard deviations of all logits of its sequence.
const TINY_TOLERANCE: f32 = 2e-4;

/// A tiny model and the logits of transformers.
pub(crate) struct TinyModel {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sequences: Vec<TinySequence>,
}

pub(crate) struct TinySequence {
    pub(crate) tokens: Vec<u32>,
    std: f32,
    /// Position and its whole row.
    rows: Vec<(usize, Vec<f32>)>,
}

impl TinyModel {
    pub(crate) fn read(name: &str) -> Self {
        let folder = repository().join("oracle/tiny");
        let json = read_json(&folder.join(format!("{name}.json")));
        let sequences = array(&json["sequences"]).iter();
        Self {
            bytes: fs::read(folder.join(format!("{name}.gguf"))).unwrap(),
            sequences: sequences.map(TinySequence::from_json).collect(),
        }
    }
}

impl TinySequence {
    fn from_json(json: &Value) -> Self {
        let rows = array(&json["positions"]).iter().map(|row| {
            let position = index(&row["position"]);
            (position, numbers(&row["logits"]))
        });
        Self {
            tokens: ids(&json["tokens"]),
            std: number(&json["std"]),
            rows: rows.collect(),
        }
    }

    /// Demands that `logits` (tokens, vocabulary) are the recorded ones.
    pub(crate) fn check(&self, model: &str, logits: &[f32]) {
        assert!(!self.rows.is_empty());
        let cols = logits.len() / self.tokens.len();
        for (position, expected) in &self.rows {
            assert_eq!(expected.len(), cols, "{model}: a whole row");
            let found = &logits[position * cols..][..cols];
            let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            let furthest = differences.fold(0.0, f32::max) / self.std;
            assert!(
                furthest <= TINY_TOLERANCE,
                "{model}, position {position} of {}: a logit is {furthest} deviations off",
                self.tokens.len()
            );
        }
    }
}

/// A real model, and the logits of llama.cpp on it and on its f32 copy.
pub(crate) struct RealModel {
    pub(crate) bytes: Vec<u8>,
    pub(crate) prompts: Vec<Prompt>,
}

pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) continuation: Vec<u32>,
    /// llama.cpp's best minus second logit at each step of the continuation.
    pub(crate) margins: Vec<f32>,
    /// The best id of the f32 copy at each step of the continuation.
    pub(crate) reference_best: Vec<u32>,
    pub(crate) rows: Vec<RealRow>,
}

pub(crate) struct RealRow {
    pub(crate) position: usize,
    pub(crate) ids: Vec<u32>,
    /// llama.cpp's logits of `ids`.
    pub(crate) logits: Vec<f32>,
    /// Logits of `ids` computed in f32 from the dequantized weights.
    pub(crate) reference: Vec<f32>,
}

impl RealModel {
    /// Reads `oracle/vectors/<name>.json` and its model.
    pub(crate) fn read(name: &str) -> Self {
        let json = read_json(&repository().join(format!("oracle/vectors/{name}.json")));
        let folder = std::env::var_os("RELIGHT_MODELS");
        let folder = folder.map_or_else(|| repository().join("models"), PathBuf::from);
        let path = folder.join(json["model"].as_str().unwrap());
        let bytes = fs::read(&path).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; `cargo xtask setup` fetches it",
                path.display()
            )
        });
        assert_eq!(
            Some(bytes.len() as u64),
            json["bytes"].as_u64(),
            "another file"
        );
        Self {
            bytes,
            prompts: array(&json["prompts"])
                .iter()
                .map(Prompt::from_json)
                .collect(),
        }
    }
}

impl Prompt {
    fn from_json(json: &Value) -> Self {
        let rows = array(&json["positions"]).iter().map(|row| RealRow {
            position: index(&row["position"]),
            ids: ids(&row["ids"]),
            logits: numbers(&row["logits"]),
            reference: numbers(&row["reference"]),
        });
        Self {
            name: json["name"].as_str().unwrap().to_owned(),
            tokens: ids(&json["tokens"]),
            continuation: ids(&json["continuation"]),
            margins: numbers(&json["margins"]),
            reference_best: ids(&json["reference_argmax"]),
            rows: rows.collect(),
        }
    }
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read_json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn array(json: &Value) -> &[Value] {
    json.as_array().unwrap()
}

fn ids(json: &Value) -> Vec<u32> {
    array(json)
        .iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

fn numbers(json: &Value) -> Vec<f32> {
    array(json).iter().map(number).collect()
}

fn index(json: &Value) -> usize {
    usize::try_from(json.as_u64().unwrap()).unwrap()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "recorded with as many digits as an f32 has"
)]
fn number(json: &Value) -> f32 {
    json.as_f64().unwrap() as f32
}
