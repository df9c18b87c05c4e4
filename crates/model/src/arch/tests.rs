//! What a description says, and what it refuses.

use expect_test::{Expect, expect};
use relight_gguf::Gguf;

use crate::draft::Draft;
use crate::recorded::RealModel;
use crate::spec::{Activation, RopeKind, RopeScaling, Spec};

fn describe(draft: &Draft) -> Result<Spec, String> {
    let bytes = draft.bytes();
    let gguf = Gguf::parse(&bytes).unwrap();
    Spec::from_gguf(&gguf).map_err(|error| error.to_string())
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "so that callers write expect![] without a borrow"
)]
fn check(draft: &Draft, expected: Expect) {
    expected.assert_eq(&describe(draft).unwrap_err());
}

#[test]
fn smollm2_is_a_llama_with_a_tied_head() {
    let model = RealModel::read("smollm2");
    let spec = Spec::from_gguf(&Gguf::parse(&model.bytes).unwrap()).unwrap();
    assert_eq!(spec.layers.len(), 30);
    assert_eq!(spec.head.matrix, spec.embedding);
    assert_eq!(spec.parameter_count(), 134_515_008);
    let attention = spec.layers[0].attention;
    assert_eq!(
        (
            attention.head_count,
            attention.kv_head_count,
            attention.head_dim
        ),
        (9, 3, 64)
    );
    assert_eq!(attention.scale, 0.125);
    assert_eq!(spec.ropes[0].kind, RopeKind::Interleaved);
}

#[test]
fn gemma_3_slides_in_five_layers_of_six() {
    let model = RealModel::read("gemma3");
    let spec = Spec::from_gguf(&Gguf::parse(&model.bytes).unwrap()).unwrap();
    let windows = spec.layers.iter().map(|layer| layer.attention.window);
    let global = windows.enumerate().filter(|(_, window)| window.is_none());
    assert_eq!(
        global.map(|(index, _)| index).collect::<Vec<_>>(),
        [5, 11, 17]
    );
    let bases = spec
        .layers
        .iter()
        .map(|layer| spec.ropes[layer.attention.rope].base);
    let expected = (0..18).map(|index| if index % 6 == 5 { 1e6 } else { 1e4 });
    assert!(bases.eq(expected));
    assert_eq!(spec.layers[0].attention.window, Some(512));
    assert_eq!(spec.layers[0].feed_forward.activation, Activation::Gelu);
    assert_eq!(spec.embedding_scale, Some(640f32.sqrt()));
}

#[test]
fn a_window_pattern_may_be_a_period_or_a_flag_per_layer() {
    let key = "gemma3.attention.sliding_window_pattern";
    let global = |draft: &Draft| -> Vec<usize> {
        let layers = describe(draft).unwrap().layers;
        let windows = layers.iter().map(|layer| layer.attention.window);
        let global = windows.enumerate().filter(|(_, window)| window.is_none());
        global.map(|(index, _)| index).collect()
    };
    let draft = Draft::tiny("gemma3-window");
    assert_eq!(global(&draft.clone().key(key, 2u32)), [1, 3, 5]);
    assert_eq!(global(&draft.clone().key(key, 1u32)), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(global(&draft.clone().key(key, 0u32)), [0usize; 0]);
    let flags = vec![true, false, true, true, true, true, false];
    assert_eq!(global(&draft.key(key, flags)), [1, 6]);
}

#[test]
fn linear_scaling_holds_for_global_layers_only() {
    let spec = describe(&Draft::tiny("gemma3-linear")).unwrap();
    assert_eq!(spec.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(spec.ropes[1].scaling, RopeScaling::None);
}

#[test]
fn an_unknown_key_of_the_architecture_is_refused() {
    check(
        &Draft::tiny("llama-gqa").key("llama.logit_scale", 2.0f32),
        expect![
            "metadata key \"llama.logit_scale\" belongs to the architecture and is not understood; ignoring it could change the model's answers"
        ],
    );
    check(
        &Draft::tiny("llama-gqa").key("llama.expert_count", 8u32),
        expect![
            "metadata key \"llama.expert_count\" is 8; supported is 0: experts are not supported yet"
        ],
    );
    let foreign = Draft::tiny("llama-gqa").key("uploader.version", 2.0f32);
    assert!(describe(&foreign).is_ok(), "not the architecture's");
}

#[test]
fn missing_and_senseless_keys_are_named() {
    let draft = Draft::tiny("llama-gqa");
    check(
        &draft.clone().without_key("llama.block_count"),
        expect![[r#"metadata key "llama.block_count" is missing"#]],
    );
    check(
        &draft.clone().key("llama.attention.head_count", "four"),
        expect![[
            r#"metadata key "llama.attention.head_count" (byte 5204) is string where u32 is expected"#
        ]],
    );
    check(
        &draft.clone().key("llama.attention.head_count_kv", 3u32),
        expect![[
            r#"metadata key "llama.attention.head_count_kv" is 3; supported is a divisor of attention.head_count"#
        ]],
    );
    check(
        &draft.clone().key("llama.attention.key_length", 24u32),
        expect![[
            r#"metadata key "llama.attention.key_length" is 24; supported is a multiple of 16 up to 1024"#
        ]],
    );
    check(
        &draft.clone().key("llama.rope.dimension_count", 18u32),
        expect![[
            r#"metadata key "llama.rope.dimension_count" is 18; supported is an even number up to the length of a head"#
        ]],
    );
    check(
        &draft.clone().key("llama.rope.scaling.type", "longrope"),
        expect![[
            r#"metadata key "llama.rope.scaling.type" is "longrope"; supported is none, linear or yarn"#
        ]],
    );
    check(
        &draft.key("llama.attention.layer_norm_rms_epsilon", f32::NAN),
        expect![[
            r#"metadata key "llama.attention.layer_norm_rms_epsilon" is NaN; supported is a finite number"#
        ]],
    );
}

#[test]
fn every_tensor_has_a_place_and_a_shape() {
    let draft = Draft::tiny("llama-gqa");
    check(
        &draft.clone().without_tensor("blk.1.ffn_up.weight"),
        expect![[r#"tensor "blk.1.ffn_up.weight" of dimensions [48, 64] is missing"#]],
    );
    check(
        &draft.clone().zeros("blk.1.ffn_up.weight", &[64, 48]),
        expect![[r#"tensor "blk.1.ffn_up.weight" has dimensions [64, 48]; expected are [48, 64]"#]],
    );
    check(
        &draft.clone().zeros("blk.2.ffn_up.weight", &[48, 64]),
        expect![[
            r#"tensor "blk.2.ffn_up.weight" of dimensions [48, 64] has no place in the architecture; ignoring it could change the model's answers"#
        ]],
    );
    check(
        &draft.clone().zeros("blk.0.attn_q_norm.weight", &[16]),
        expect![[
            r#"tensor "blk.0.attn_q_norm.weight" of dimensions [16] has no place in the architecture; ignoring it could change the model's answers"#
        ]],
    );
    check(
        &Draft::tiny("qwen2-seven").without_tensor("blk.0.attn_k.bias"),
        expect![[r#"tensor "blk.0.attn_k.bias" of dimensions [16] is missing"#]],
    );
    let odd_type = draft.tensors(|tensor| {
        if tensor.name == "output_norm.weight" {
            tensor.ggml_type = relight_gguf::GgmlType::I32;
        }
    });
    check(
        &odd_type,
        expect![[
            r#"tensor "output_norm.weight" has the type I32, which we cannot compute with yet"#
        ]],
    );
}

#[test]
fn other_architectures_and_kinds_of_files_are_refused() {
    let draft = Draft::tiny("llama-gqa");
    check(
        &draft.clone().key("general.architecture", "mamba"),
        expect![[r#"architecture "mamba" is not supported; gemma3, llama, qwen2 are"#]],
    );
    check(
        &draft.clone().key("general.type", "adapter"),
        expect![[r#"metadata key "general.type" is "adapter"; supported is "model""#]],
    );
    let tokens: Vec<String> = (0..289).map(|token| token.to_string()).collect();
    check(
        &draft.key("tokenizer.ggml.tokens", tokens),
        expect![[r#"the vocabulary has 289 tokens, but "token_embd.weight" only 288 rows"#]],
    );
}
