//! What a model file says about itself, in a few fields.

use relight_gguf::{Header, Metadata, Optional};
use serde_json::{Value, json};

/// A model in a few fields; what a file does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) name: Option<String>,
    pub(super) architecture: Option<String>,
    /// Weight format of most bytes.
    pub(super) quantization: Option<&'static str>,
    pub(super) parameters: u64,
    pub(super) layers: Option<u64>,
    pub(super) hidden: Option<u64>,
    pub(super) context: Option<u64>,
    pub(super) vocabulary: Option<usize>,
    pub(super) license: Option<String>,
    pub(super) chat_template: bool,
}

impl Summary {
    pub(super) fn of(header: &Header<'_>) -> Self {
        let metadata = header.metadata();
        let architecture = header.architecture().ok();
        let own = |suffix: &str| {
            let key = format!("{}.{suffix}", architecture?);
            metadata.u64(&key).optional().ok().flatten()
        };
        let tokens = metadata.array("tokenizer.ggml.tokens");
        Self {
            name: text(metadata, "general.name"),
            architecture: architecture.map(str::to_owned),
            quantization: main_format(header),
            parameters: parameters(header),
            layers: own("block_count"),
            hidden: own("embedding_length"),
            context: own("context_length"),
            vocabulary: tokens.ok().map(|tokens| tokens.len()),
            license: text(metadata, "general.license"),
            chat_template: metadata.get("tokenizer.chat_template").is_some(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "title": self.name,
            "architecture": self.architecture,
            "quantization": self.quantization,
            "parameters": self.parameters,
            "layers": self.layers,
            "hidden": self.hidden,
            "context": self.context,
            "vocabulary": self.vocabulary,
            "license": self.license,
            "chat_template": self.chat_template,
        })
    }
}

fn text(metadata: &Metadata<'_>, key: &str) -> Option<String> {
    metadata.str(key).ok().map(str::to_owned)
}

fn parameters(header: &Header<'_>) -> u64 {
    let tensors = header.tensors().iter();
    let sizes = tensors.map(|tensor| tensor.columns().saturating_mul(tensor.rows()));
    sizes.fold(0, u64::saturating_add)
}

fn main_format(header: &Header<'_>) -> Option<&'static str> {
    let mut bytes: Vec<(&'static str, usize)> = Vec::new();
    for tensor in header.tensors() {
        let name = tensor.ggml_type().name();
        let size = tensor.data_range().len();
        match bytes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, total)) => *total = total.saturating_add(size),
            None => bytes.push((name, size)),
        }
    }
    bytes
        .into_iter()
        .max_by_key(|(_, total)| *total)
        .map(|(name, _)| name)
}
