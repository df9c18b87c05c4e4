//! Where the time of an engine's steps goes, and what they read.

use serde::{Deserialize, Serialize};

/// Microseconds by part of a step, and bytes, since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCosts {
    /// Embeddings of the tokens, and what all layers share.
    pub embed_us: u64,
    /// Queries, keys and values, with the norm and the rounding before them.
    pub project_us: u64,
    pub attention_us: u64,
    /// The attention's output.
    pub output_us: u64,
    pub feed_forward_us: u64,
    /// The last norm and the logits.
    pub head_us: u64,
    /// What steps do outside the forward pass: planning, drawing tokens, stop strings, text.
    pub rest_us: u64,
    /// Of all that, what the first worker waited for the others.
    pub wait_us: u64,
    /// Weights that were multiplied, once per step.
    pub weight_bytes: u64,
    /// Keys and values that were attended to, once per step and sequence.
    pub kv_bytes: u64,
}

impl StepCosts {
    /// Parts of a step by name; they do not overlap.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("embed", self.embed_us),
            ("project", self.project_us),
            ("attention", self.attention_us),
            ("output", self.output_us),
            ("feed_forward", self.feed_forward_us),
            ("head", self.head_us),
            ("rest", self.rest_us),
        ]
    }

    /// Of two engines together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            embed_us: self.embed_us.saturating_add(other.embed_us),
            project_us: self.project_us.saturating_add(other.project_us),
            attention_us: self.attention_us.saturating_add(other.attention_us),
            output_us: self.output_us.saturating_add(other.output_us),
            feed_forward_us: self.feed_forward_us.saturating_add(other.feed_forward_us),
            head_us: self.head_us.saturating_add(other.head_us),
            rest_us: self.rest_us.saturating_add(other.rest_us),
            wait_us: self.wait_us.saturating_add(other.wait_us),
            weight_bytes: self.weight_bytes.saturating_add(other.weight_bytes),
            kv_bytes: self.kv_bytes.saturating_add(other.kv_bytes),
        }
    }
}
