use proptest::prelude::*;

use super::chat::chat_call;
use super::completion::completion_call;
use crate::refusal::Refusal;

/// JSON-like text: mostly well formed, with the fields that we read and values that hurt.
fn body() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("NaN".to_owned()),
        Just("1e400".to_owned()),
        Just("-0.0".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just(r#""\ud800""#.to_owned()),
        Just("[".repeat(200)),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f32>().prop_map(|value| value.to_string()),
        any::<bool>().prop_map(|value| value.to_string()),
        ".{0,12}".prop_map(|text| serde_json::Value::from(text).to_string()),
        Just(r#"[{"role":"user","content":"hi"}]"#.to_owned()),
        Just(r#"{"1":2,"include_usage":true,"type":"text"}"#.to_owned()),
        Just("[1,2,3]".to_owned()),
        Just(r#"["a","b"]"#.to_owned()),
    ];
    let key = prop::sample::select(vec![
        "messages",
        "prompt",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "seed",
        "stop",
        "max_tokens",
        "min_tokens",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "stream",
        "stream_options",
        "chat_template_kwargs",
        "stop_token_ids",
        "best_of",
        "echo",
        "model",
        "response_format",
        "modalities",
        "tools",
        "repetition_penalty",
        "presence_penalty",
    ]);
    prop::collection::vec((key, value), 0..8).prop_map(|fields| {
        let fields = fields
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    })
}

fn is_told(refusal: &Refusal) -> bool {
    let text = refusal.to_string();
    !text.is_empty() && text.len() < 1_000
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused_in_words(body in body()) {
        for call in [chat_call(body.as_bytes(), || 1), completion_call(body.as_bytes(), || 1)] {
            match call {
                Ok(call) => for request in call.requests {
                    let sampling = &request.sampling;
                    prop_assert!((0.0..=100.0).contains(&sampling.temperature));
                    prop_assert!(sampling.top_p > 0.0 && sampling.top_p <= 1.0);
                    prop_assert!((0.0..=1.0).contains(&sampling.min_p));
                    prop_assert!(sampling.repetition_penalty > 0.0);
                    prop_assert!((1..=16).contains(&request.choices));
                    prop_assert_ne!(request.stop.max_tokens, Some(0));
                    prop_assert!(request.stop.strings.iter().all(|text| !text.is_empty()));
                },
                Err(refusal) => prop_assert!(is_told(&refusal)),
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_in_words(body in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Err(refusal) = chat_call(&body, || 1) {
            prop_assert!(is_told(&refusal));
        }
    }
}
