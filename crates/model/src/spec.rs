//! What a model is made of: the components of every layer, their hyper-parameters and the
//! tensors they use. A [`Spec`] says everything that the computation needs to know and
//! holds no weights; [`crate::arch`] builds one from a file.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the ids in a description are made with the tables they index; f64 is narrowed on purpose"
)]

mod claims;
mod error;
mod rope;

use relight_gguf::Gguf;
use relight_kernels::{Format, tile_bytes};

pub use claims::{Bias, Claims, Layer};
pub use error::{ArchError, Found};
pub use relight_kernels::RopeKind;
pub use rope::{RopeScaling, RopeSpec, Yarn};

/// Index of a matrix in [`Spec::matrices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatrixId(pub(crate) usize);

/// Index of a vector in [`Spec::vectors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VectorId(pub(crate) usize);

/// A two-dimensional tensor that is multiplied or looked up in, in the file's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub name: String,
    pub format: Format,
    /// Outputs of a multiplication, or entries of a table.
    pub rows: usize,
    /// Inputs of a multiplication, or the width of an entry.
    pub cols: usize,
}

/// A one-dimensional tensor, used as f32 whatever the file's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    pub name: String,
    pub format: Format,
    pub len: usize,
}

/// A whole decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `general.architecture` of the file.
    pub architecture: String,
    /// Every matrix that a component refers to, each once.
    pub matrices: Vec<Matrix>,
    /// Every vector that a component refers to, each once.
    pub vectors: Vec<Vector>,
    pub vocab_size: usize,
    /// Length of the residual stream of one token.
    pub width: usize,
    /// Tokens of the longest context that the model was trained for.
    pub context_length: usize,
    /// (vocab_size, width)
    pub embedding: MatrixId,
    /// Factor of the looked-up embedding.
    pub embedding_scale: Option<f32>,
    /// The rotations that layers refer to.
    pub ropes: Vec<RopeSpec>,
    pub layers: Vec<LayerSpec>,
    pub output_norm: Norm,
    /// (vocab_size, width); the embedding itself when the file has no own one.
    pub head: Linear,
    /// `cap * tanh(logit / cap)` on the logits.
    pub logit_softcap: Option<f32>,
}

impl Spec {
    /// Describes the model in `gguf`.
    ///
    /// # Errors
    /// See [`ArchError`]: nothing in the file that could change the computation is ignored.
    pub fn from_gguf(gguf: &Gguf<'_>) -> Result<Self, ArchError> {
        crate::arch::describe(gguf)
    }

    #[must_use]
    pub fn matrix(&self, id: MatrixId) -> &Matrix {
        &self.matrices[id.0]
    }

    #[must_use]
    pub fn vector(&self, id: VectorId) -> &Vector {
        &self.vectors[id.0]
    }

    /// Bytes of the matrices that a forward pass multiplies with. Where nobody wants logits,
    /// it ends with the keys and values of the last layer.
    #[must_use]
    pub fn product_bytes(&self, wants_logits: bool) -> u64 {
        let projections = self.layers.iter().flat_map(|layer| {
            let attention = &layer.attention;
            [attention.query, attention.key, attention.value]
        });
        let whole = self.layers.len().saturating_sub(usize::from(!wants_logits));
        let others = self.layers.iter().take(whole).flat_map(|layer| {
            let inner = &layer.feed_forward;
            [layer.attention.output, inner.gate, inner.up, inner.down]
        });
        let linears = projections.chain(others);
        let linears = linears.chain(wants_logits.then_some(self.head));
        let bytes = linears.map(|linear| {
            let matrix = self.matrix(linear.matrix);
            tile_bytes(matrix.format, matrix.rows, matrix.cols) as u64
        });
        bytes.sum()
    }

    /// Weights of all matrices together; tied ones count once.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        let matrices = self.matrices.iter().map(|matrix| matrix.rows * matrix.cols);
        let vectors = self.vectors.iter().map(|vector| vector.len);
        matrices.chain(vectors).map(|count| count as u64).sum()
    }
}

/// One block of the decoder. With `x` the residual stream:
/// `x += post(attention(norm(x)))`, then `x += post(feed_forward(norm(x)))`, where `post` is
/// the identity unless a post-norm is given.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    pub attention_norm: Norm,
    pub attention: AttentionSpec,
    pub attention_post_norm: Option<Norm>,
    pub feed_forward_norm: Norm,
    pub feed_forward: FeedForwardSpec,
    pub feed_forward_post_norm: Option<Norm>,
}

/// `x / sqrt(mean(x^2) + epsilon) * weight`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    pub weight: VectorId,
    pub epsilon: f32,
}

/// `matrix * x + bias`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    pub matrix: MatrixId,
    pub bias: Option<VectorId>,
}

/// Causal attention; each key/value head serves `head_count / kv_head_count` query heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    /// Norms over each head of the queries and keys, before the rotation.
    pub query_norm: Option<Norm>,
    pub key_norm: Option<Norm>,
    pub head_count: usize,
    pub kv_head_count: usize,
    pub head_dim: usize,
    /// Factor of the product of query and key.
    pub scale: f32,
    /// `cap * tanh(score / cap)` on the scaled scores.
    pub softcap: Option<f32>,
    /// How many tokens a query sees, itself included; all earlier ones if `None`.
    pub window: Option<u32>,
    /// Index into [`Spec::ropes`].
    pub rope: usize,
}

/// `down(activation(gate(x)) * up(x))`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedForwardSpec {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
    pub activation: Activation,
}

/// The function between gate and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`
    Silu,
    /// The tanh approximation: `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
    Gelu,
}

#[cfg(test)]
mod tests;
