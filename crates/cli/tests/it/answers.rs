//! What clients get from a real engine: refusals that need the model, usage, cancels.

use serde_json::{Value, json};

use crate::server::{Server, long_prompt};

fn refusal(server: &Server, path: &str, body: &Value) -> (u16, String, String) {
    let answer = server.post(path, body);
    let status = answer.status;
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let error = answer.json()["error"].clone();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    (status, text("param"), text("message"))
}

#[test]
fn what_the_model_cannot_serve_is_refused_by_name() {
    let server = Server::start(&["-c", "256"]);
    let vocabulary = 640;
    for (field, value) in [
        ("prompt", json!([vocabulary])),
        ("stop_token_ids", json!([vocabulary])),
        ("logit_bias", json!({ "640": 1 })),
    ] {
        let mut body = long_prompt("x", 4);
        body[field] = value;
        let (status, param, message) = refusal(&server, "/v1/completions", &body);
        assert_eq!(status, 400, "{field}: {message}");
        assert!(param.contains(field), "{field} is not named by {param}");
    }
    let (status, _, message) = refusal(
        &server,
        "/v1/completions",
        &json!({ "prompt": vec![5; 256], "max_tokens": 4 }),
    );
    assert_eq!(status, 400);
    assert!(message.contains("256"), "{message}");
    let fits =
        server.complete(&json!({ "prompt": vec![5; 250], "max_tokens": 4000, "ignore_eos": true }));
    assert_eq!(fits["choices"][0]["finish_reason"], "length");
    assert_eq!(fits["usage"]["completion_tokens"], json!(6));
}

#[test]
fn usage_counts_what_was_computed_and_what_was_cached() {
    let server = Server::start(&[]);
    let body = json!({ "prompt": vec![7; 200], "max_tokens": 5, "n": 2, "ignore_eos": true });
    let first = server.complete(&body);
    assert_eq!(first["usage"]["prompt_tokens"], json!(200));
    assert_eq!(first["usage"]["completion_tokens"], json!(10));
    let second = server.complete(&body);
    assert!(second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() >= Some(192));
}

#[test]
fn a_client_that_leaves_frees_its_slot() {
    let server = Server::start(&["-np", "1", "-c", "1000"]);
    let mut body = long_prompt("Leave", 900);
    body["stream"] = json!(true);
    let mut answer = server.post("/v1/completions", &body);
    answer.event().expect("an event");
    drop(answer);
    // With one slot, the next request is answered only because the slot came back; and it
    // comes long before the first one would have ended.
    let next = server.complete(&long_prompt("Next", 3));
    assert_eq!(next["usage"]["completion_tokens"], json!(3));
    assert_eq!(server.metric("relight_sequences_running", ""), 0.0);
}

#[test]
fn more_work_than_pages_is_preempted_and_still_right() {
    let roomy = Server::start(&[]);
    let prompts: Vec<String> = (0..4)
        .map(|index| format!("{index} is the number of"))
        .collect();
    let expected: Vec<Value> = prompts
        .iter()
        .map(|prompt| roomy.complete(&long_prompt(prompt, 300))["choices"].clone())
        .collect();
    // Each answer needs 5 or 6 pages: two fit, four do not.
    let tight = Server::start(&["--pages", "12"]);
    std::thread::scope(|scope| {
        let answers: Vec<_> = prompts
            .iter()
            .map(|prompt| {
                scope.spawn(|| tight.complete(&long_prompt(prompt, 300))["choices"].clone())
            })
            .collect();
        for (answer, expected) in answers.into_iter().zip(expected) {
            assert!(answer.join().unwrap() == expected);
        }
    });
}

#[test]
fn every_instruction_set_answers_with_the_same_bytes() {
    let mut body = long_prompt("All tiers", 60);
    body["logprobs"] = json!(2);
    let choices =
        |tier: &str| Server::start(&["--kernels", tier]).complete(&body)["choices"].clone();
    let scalar = choices("scalar");
    for tier in vector_tiers() {
        assert!(choices(tier) == scalar, "{tier}");
    }
}

/// What this processor has beside plain instructions.
fn vector_tiers() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let tiers = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("avx-vnni", std::arch::is_x86_feature_detected!("avxvnni")),
        ("avx512", std::arch::is_x86_feature_detected!("avx512vnni")),
    ];
    #[cfg(target_arch = "aarch64")]
    let tiers = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        (
            "neon-dot",
            std::arch::is_aarch64_feature_detected!("dotprod"),
        ),
    ];
    let present = tiers.into_iter().filter(|(_, is_there)| *is_there);
    present.map(|(tier, _)| tier).collect()
}
