//! `qwen2`: Qwen 2 and 2.5. Llama with biases on queries, keys and values, and with the
//! rotation's pairs half a head apart.

use super::{Decoder, Shape};
use crate::spec::{
    Activation, ArchError, AttentionSpec, Bias, Claims, FeedForwardSpec, LayerSpec, RopeKind,
    RopeSpec,
};

pub(super) fn describe(claims: &mut Claims<'_>) -> Result<Decoder, ArchError> {
    let shape = Shape::read(claims)?;
    let epsilon = claims.number("attention.layer_norm_rms_epsilon")?;
    let rope = RopeSpec::read(claims, RopeKind::Neox, shape.head_dim, shape.context_length)?;
    let scale = shape.score_scale() * rope.score_factor();
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
            query: tensors.linear("attn_q", query_width, width, Bias::Required)?,
            key: tensors.linear("attn_k", kv_width, width, Bias::Required)?,
            value: tensors.linear("attn_v", kv_width, width, Bias::Required)?,
            output: tensors.linear("attn_output", width, query_width, Bias::None)?,
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
            gate: tensors.linear("ffn_gate", inner, width, Bias::None)?,
            up: tensors.linear("ffn_up", inner, width, Bias::None)?,
            down: tensors.linear("ffn_down", width, inner, Bias::None)?,
            activation: Activation::Silu,
        },
        feed_forward_post_norm: None,
    })
}
