//! The reference against the logits of other implementations.

use relight_gguf::Gguf;

use super::{CachePrecision, Reference};
use crate::recorded::{self, RealModel, TinyModel};
use crate::spec::Spec;

#[test]
fn tiny_models_have_the_logits_of_transformers() {
    for name in recorded::TINY {
        let model = TinyModel::read(name);
        let gguf = Gguf::parse(&model.bytes).unwrap();
        let spec = Spec::from_gguf(&gguf).unwrap();
        for sequence in &model.sequences {
            let mut reference = Reference::new(&spec, &gguf, CachePrecision::F16);
            let logits = reference.append(&sequence.tokens);
            sequence.check(name, &logits);
        }
    }
}

/// How far a logit may be off. llama.cpp rounds GELU to a table of f16 values, which moves
/// Gemma's logits by 0.002 (root mean square); wrong arithmetic moves them by whole units.
const REAL_TOLERANCES: [(&str, f32); 2] = [("smollm2", 2e-4), ("gemma3", 0.02)];

#[test]
fn real_models_have_the_logits_of_their_f32_copies() {
    for (name, tolerance) in REAL_TOLERANCES {
        let model = RealModel::read(name);
        let gguf = Gguf::parse(&model.bytes).unwrap();
        let spec = Spec::from_gguf(&gguf).unwrap();
        let prompt = model
            .prompts
            .iter()
            .find(|prompt| prompt.name == "fact")
            .unwrap();
        let mut reference = Reference::new(&spec, &gguf, CachePrecision::F32);
        let logits = reference.append(&prompt.tokens);
        for row in prompt
            .rows
            .iter()
            .filter(|row| row.position < prompt.tokens.len())
        {
            let found = &logits[row.position * spec.vocab_size..][..spec.vocab_size];
            for (id, expected) in row.ids.iter().zip(&row.reference) {
                let found = found[*id as usize];
                assert!(
                    (found - expected).abs() < tolerance,
                    "{name}, position {}, token {id}: {found}, not {expected}",
                    row.position
                );
            }
        }
    }
}
