//! `llama`: Llama 1 to 3, and what is built like them (Mistral, SmolLM2, Yi, ...).
//! Queries and keys are stored so that pairs of the rotation lie side by side.

use super::{Decoder, Shape};
use crate::spec::{
    Activation, ArchError, AttentionSpec, Bias, Claims, FeedForwardSpec, LayerSpec, RopeKind,
    RopeSpec,
};

pub(super) fn describe(claims: &mut Claims<'_>) -> Result<Decoder, ArchError> {
    for key in ["expert_count", "expert_used_count"] {
        if let Some(experts) = claims.optional_count(key)?.filter(|count| *count != 0) {
            return Err(claims.unsupported(key, experts, "0: experts are not supported yet"));
        }
    }
    let shape = Shape::read(claims)?;
    let epsilon = claims.number("attention.layer_norm_rms_epsilon")?;
    let kind = RopeKind::Interleaved;
    let mut rope = RopeSpec::read(claims, kind, shape.head_dim, shape.context_length)?;
    // Llama 3.1 and later stretch each pair by its own divisor.
    rope.divisors = claims.optional_vector("rope_freqs.weight", rope.dims / 2)?;
    let scale = claims.optional_number("attention.scale")?;
    let scale = scale.unwrap_or_else(|| shape.score_scale()) * rope.score_factor();
    let layers = (0..shape.layer_count).map(|index| layer(claims, index, &shape, epsilon, scale));
    Ok(Decoder {
        layers: layers.collect::<Result<_, _>>()?,
        ropes: vec![rope],
        shape,
        epsilon,
        embedding_scale: None,
        logit_softcap: None,
    })
}

fn layer(
    claims: &mut Claims<'_>,
    index: usize,
    shape: &Shape,
    epsilon: f32,
    scale: f32,
) -> Result<LayerSpec, ArchError> {
    let (width, query_width, kv_width) = (shape.width, shape.query_width(), shape.kv_width());
    let inner = shape.feed_forward_width;
    let mut tensors = claims.layer(index);
    Ok(LayerSpec {
        attention_norm: tensors.norm("attn_norm", width, epsilon)?,
        attention: AttentionSpec {
            query: tensors.linear("attn_q", query_width, width, Bias::Optional)?,
            key: tensors.linear("attn_k", kv_width, width, Bias::Optional)?,
            value: tensors.linear("attn_v", kv_width, width, Bias::Optional)?,
            output: tensors.linear("attn_output", width, query_width, Bias::Optional)?,
            query_norm: None,
            key_norm: None,
            head_count: shape.head_count,
            kv_head_count: shape.kv_head_count,
            head_dim: shape.head_dim,
            scale,
            softcap: None,
            window: None,
            rope: 0,
        },
        attention_post_norm: None,
        feed_forward_norm: tensors.norm("ffn_norm", width, epsilon)?,
        feed_forward: FeedForwardSpec {
            gate: tensors.linear("ffn_gate", inner, width, Bias::Optional)?,
            up: tensors.linear("ffn_up", inner, width, Bias::Optional)?,
            down: tensors.linear("ffn_down", width, inner, Bias::Optional)?,
            activation: Activation::Silu,
        },
        feed_forward_post_norm: None,
    })
}
