//! `gemma3`: the text decoder of Gemma 3. Norms before and after each part, norms on query
//! and key heads, and mostly sliding layers with a rotation of their own. The `+ 1` of its
//! norms is already in the weights of GGUF files.

use relight_gguf::Value;

use super::{Decoder, Shape};
use crate::spec::{
    Activation, ArchError, AttentionSpec, Bias, Claims, FeedForwardSpec, LayerSpec, RopeKind,
    RopeScaling, RopeSpec,
};

/// Every sixth layer sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 6;
/// Base of the sliding layers' rotation.
const WINDOW_ROPE_BASE: f32 = 1e4;
/// Only the 27B model has this many layers, and only it scales scores by the width per head.
const LAYERS_27B: usize = 62;

const GLOBAL_ROPE: usize = 0;
const WINDOW_ROPE: usize = 1;

pub(super) fn describe(claims: &mut Claims<'_>) -> Result<Decoder, ArchError> {
    let shape = Shape::read(claims)?;
    let epsilon = claims.number("attention.layer_norm_rms_epsilon")?;
    let kind = RopeKind::Neox;
    let global_rope = RopeSpec::read(claims, kind, shape.head_dim, shape.context_length)?;
    let window_base = claims.optional_number("rope.freq_base_swa")?;
    let window_rope = RopeSpec {
        base: window_base.unwrap_or(WINDOW_ROPE_BASE),
        scaling: RopeScaling::None,
        ..global_rope
    };
    if let RopeScaling::Yarn(_) = global_rope.scaling {
        return Err(claims.unsupported("rope.scaling.type", "yarn", "none or linear"));
    }
    let windows = windows(claims, shape.layer_count)?;
    let scale = score_scale(claims, &shape)?;
    let logit_softcap = softcap(claims, "final_logit_softcapping")?;
    let score_softcap = softcap(claims, "attn_logit_softcapping")?;
    let layers = windows.iter().enumerate().map(|(index, window)| {
        let attention = Attention {
            scale,
            softcap: score_softcap,
            window: *window,
        };
        layer(claims, index, &shape, epsilon, attention)
    });
    Ok(Decoder {
        layers: layers.collect::<Result<_, _>>()?,
        ropes: vec![global_rope, window_rope],
        shape,
        epsilon,
        embedding_scale: Some((shape.width as f32).sqrt()),
        logit_softcap,
    })
}

/// What the attention of a layer has beside its tensors.
#[derive(Clone, Copy)]
struct Attention {
    scale: f32,
    softcap: Option<f32>,
    window: Option<u32>,
}

fn layer(
    claims: &mut Claims<'_>,
    index: usize,
    shape: &Shape,
    epsilon: f32,
    attention: Attention,
) -> Result<LayerSpec, ArchError> {
    let (width, query_width, kv_width) = (shape.width, shape.query_width(), shape.kv_width());
    let inner = shape.feed_forward_width;
    let mut tensors = claims.layer(index);
    Ok(LayerSpec {
        attention_norm: tensors.norm("attn_norm", width, epsilon)?,
        attention: AttentionSpec {
            query: tensors.linear("attn_q", query_width, width, Bias::None)?,
            key: tensors.linear("attn_k", kv_width, width, Bias::None)?,
            value: tensors.linear("attn_v", kv_width, width, Bias::None)?,
            output: tensors.linear("attn_output", width, query_width, Bias::None)?,
            query_norm: Some(tensors.norm("attn_q_norm", shape.head_dim, epsilon)?),
            key_norm: Some(tensors.norm("attn_k_norm", shape.head_dim, epsilon)?),
            head_count: shape.head_count,
            kv_head_count: shape.kv_head_count,
            head_dim: shape.head_dim,
            scale: attention.scale,
            softcap: attention.softcap,
            window: attention.window,
            rope: match attention.window {
                Some(_) => WINDOW_ROPE,
                None => GLOBAL_ROPE,
            },
        },
        attention_post_norm: Some(tensors.norm("post_attention_norm", width, epsilon)?),
        feed_forward_norm: tensors.norm("ffn_norm", width, epsilon)?,
        feed_forward: FeedForwardSpec {
            gate: tensors.linear("ffn_gate", inner, width, Bias::None)?,
            up: tensors.linear("ffn_up", inner, width, Bias::None)?,
            down: tensors.linear("ffn_down", width, inner, Bias::None)?,
            activation: Activation::Gelu,
        },
        feed_forward_post_norm: Some(tensors.norm("post_ffw_norm", width, epsilon)?),
    })
}

/// The window of every layer.
fn windows(claims: &mut Claims<'_>, layer_count: usize) -> Result<Vec<Option<u32>>, ArchError> {
    let window = claims.optional_u32("attention.sliding_window")?;
    let window = window.filter(|tokens| *tokens != 0);
    let key = "attention.sliding_window_pattern";
    let slides: Vec<bool> = match claims.optional_value(key) {
        None => (0..layer_count)
            .map(|index| slides(index, WINDOW_PERIOD))
            .collect(),
        Some(Value::Array(pattern)) => {
            let flags = pattern.iter().map(|value| value.as_bool());
            flags.collect::<Option<_>>().unwrap_or_default()
        }
        Some(value) => {
            let period = value
                .as_integer()
                .and_then(|period| usize::try_from(period).ok());
            let period = period.ok_or_else(|| claims.unsupported(key, f32::NAN, PATTERN))?;
            (0..layer_count)
                .map(|index| slides(index, period))
                .collect()
        }
    };
    if slides.len() != layer_count {
        return Err(claims.unsupported(key, slides.len(), PATTERN));
    }
    Ok(slides
        .iter()
        .map(|slides| window.filter(|_| *slides))
        .collect())
}

const PATTERN: &str = "a number of layers, or a bool per layer";

/// The last layer of every period is global. A period of zero has no global layer, one of
/// one has only those.
fn slides(index: usize, period: usize) -> bool {
    period == 0 || index % period < period - 1
}

fn score_scale(claims: &mut Claims<'_>, shape: &Shape) -> Result<f32, ArchError> {
    Ok(match claims.optional_number("attention.scale")? {
        Some(scale) => scale,
        None if shape.layer_count == LAYERS_27B => {
            1.0 / ((shape.width / shape.head_count) as f32).sqrt()
        }
        None => shape.score_scale(),
    })
}

/// Zero is how files say that there is none.
fn softcap(claims: &mut Claims<'_>, key: &str) -> Result<Option<f32>, ArchError> {
    let softcap = claims
        .optional_number(key)?
        .filter(|softcap| *softcap != 0.0);
    match softcap {
        Some(softcap) if softcap < 0.0 => {
            Err(claims.unsupported(key, softcap, "a positive number"))
        }
        softcap => Ok(softcap),
    }
}
