//! The architectures: each file maps one `general.architecture` of GGUF files to the
//! components of [`crate::spec`]. There is no computation here; a new architecture is a new
//! file and a line in [`ARCHITECTURES`].

mod gemma3;
mod llama;
mod qwen2;
mod shape;

use relight_gguf::{Gguf, Optional};

use crate::spec::{ArchError, Claims, LayerSpec, Linear, RopeSpec, Spec};
use shape::Shape;

/// Name in files and description of each architecture.
const ARCHITECTURES: [(&str, Describe); 3] = [
    ("gemma3", gemma3::describe),
    ("llama", llama::describe),
    ("qwen2", qwen2::describe),
];

type Describe = fn(&mut Claims<'_>) -> Result<Decoder, ArchError>;

/// What an architecture says of a model: a [`Spec`] without the parts that are the same for
/// all of them.
struct Decoder {
    shape: Shape,
    epsilon: f32,
    embedding_scale: Option<f32>,
    ropes: Vec<RopeSpec>,
    layers: Vec<LayerSpec>,
    logit_softcap: Option<f32>,
}

/// Describes the model in `gguf`.
pub(crate) fn describe(gguf: &Gguf<'_>) -> Result<Spec, ArchError> {
    let metadata = gguf.metadata();
    if let Some(kind) = metadata.str("general.type").optional()?
        && kind != "model"
    {
        return Err(ArchError::UnsupportedValue {
            key: "general.type".to_owned(),
            found: kind.into(),
            expected: "\"model\"",
        });
    }
    let mut claims = Claims::new(gguf)?;
    let name = claims.architecture();
    let known = ARCHITECTURES.iter().find(|(known, _)| *known == name);
    let Some((_, describe)) = known else {
        return Err(ArchError::UnknownArchitecture {
            found: name.to_owned(),
            supported: ARCHITECTURES.map(|(name, _)| name).to_vec(),
        });
    };
    let decoder = describe(&mut claims)?;
    finish(claims, decoder)
}

/// Claims the ends of the decoder, and checks that nothing is left.
fn finish(mut claims: Claims<'_>, decoder: Decoder) -> Result<Spec, ArchError> {
    let width = decoder.shape.width;
    let embedding = claims.embedding("token_embd.weight", width)?;
    let vocab_size = claims.rows(embedding);
    let output_norm = claims.norm("output_norm", width, decoder.epsilon)?;
    let own_head = claims.optional_matrix("output.weight", vocab_size, width)?;
    let head = Linear {
        matrix: own_head.unwrap_or(embedding),
        bias: claims.optional_vector("output.bias", vocab_size)?,
    };
    let architecture = claims.architecture().to_owned();
    let (matrices, vectors) = claims.finish()?;
    Ok(Spec {
        architecture,
        matrices,
        vectors,
        vocab_size,
        width,
        context_length: decoder.shape.context_length,
        embedding,
        embedding_scale: decoder.embedding_scale,
        ropes: decoder.ropes,
        layers: decoder.layers,
        output_norm,
        head,
        logit_softcap: decoder.logit_softcap,
    })
}

#[cfg(test)]
mod tests;
