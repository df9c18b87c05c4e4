//! Files are well-formed, complete and the same for the same seed.

use relight_gguf::{GgmlType, Gguf};

use super::{Architecture, FORMATS, Formats, TinyModel};

fn presets() -> [TinyModel; 4] {
    [
        TinyModel::llama(),
        TinyModel::qwen2(),
        TinyModel::gemma3(),
        TinyModel::q4_k_m(),
    ]
}

#[test]
fn a_seed_stands_for_one_file() {
    for model in presets() {
        assert!(model.build() == model.build());
        let other = TinyModel {
            seed: model.seed + 1,
            ..model.clone()
        };
        assert!(model.build() != other.build());
    }
}

#[test]
fn every_architecture_can_be_built_in_every_format() {
    for preset in [TinyModel::llama(), TinyModel::qwen2(), TinyModel::gemma3()] {
        for format in FORMATS {
            let model = TinyModel {
                formats: Formats {
                    output: preset.formats.output.map(|_| format),
                    ..Formats::uniform(format)
                },
                hidden: 256,
                feed_forward: 256,
                heads: 8,
                layers: 1,
                ..preset.clone()
            };
            let file = model.build();
            let gguf = Gguf::parse(&file).unwrap();
            assert_eq!(gguf.architecture(), Ok(model.architecture.name()));
            let embedding = gguf.tensor("token_embd.weight").unwrap();
            assert_eq!(embedding.ggml_type(), format);
            assert_eq!(embedding.dimensions(), [256, u64::from(model.vocabulary)]);
            let floats = gguf
                .tensors()
                .iter()
                .filter(|tensor| tensor.ggml_type() == GgmlType::F32)
                .flat_map(|tensor| gguf.data(tensor).as_chunks::<4>().0)
                .map(|bytes| f32::from_le_bytes(*bytes));
            assert!(floats.into_iter().all(f32::is_finite));
        }
    }
}

#[test]
fn each_architecture_has_its_own_tensors() {
    let names = |model: TinyModel| {
        let file = model.build();
        let gguf = Gguf::parse(&file).unwrap();
        let names = gguf.tensors().iter().map(|tensor| tensor.name().to_owned());
        names.collect::<Vec<_>>()
    };
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);

    let llama = names(TinyModel {
        rope_factors: true,
        ..TinyModel::llama()
    });
    assert!(has(&llama, "output.weight") && has(&llama, "rope_freqs.weight"));
    assert!(!has(&llama, "blk.0.attn_q.bias"));
    let qwen2 = names(TinyModel::qwen2());
    assert!(has(&qwen2, "blk.1.attn_q.bias") && has(&qwen2, "blk.1.attn_v.bias"));
    let gemma3 = names(TinyModel::gemma3());
    for part in [
        "attn_q_norm",
        "attn_k_norm",
        "post_attention_norm",
        "post_ffw_norm",
    ] {
        assert!(has(&gemma3, &format!("blk.5.{part}.weight")), "{part}");
    }
    assert!(!has(&gemma3, "output.weight"));
}

#[test]
fn metadata_says_what_was_asked_for() {
    let model = TinyModel {
        context: 300,
        chat_template: false,
        ..TinyModel::gemma3()
    };
    let file = model.build();
    let gguf = Gguf::parse(&file).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.u32("gemma3.context_length"), Ok(300));
    assert_eq!(metadata.u32("gemma3.attention.sliding_window"), Ok(40));
    assert_eq!(
        metadata.strings("tokenizer.ggml.tokens").unwrap().len(),
        768
    );
    assert_eq!(metadata.f32s("tokenizer.ggml.scores").unwrap().len(), 768);
    assert_eq!(metadata.u32("tokenizer.ggml.eos_token_id"), Ok(1));
    assert!(metadata.get("tokenizer.chat_template").is_none());
    assert_eq!(model.architecture, Architecture::Gemma3);
}
