//! Everything that is not a stream and not a failure.

use std::time::Duration;

use expect_test::expect;
use relight_protocol::{FinishReason, Prompt};
use relight_supervisor::{FaultId, QuarantinedRequest};

use super::client::{Client, get, masked, post, send};
use super::scripted::{
    Server, accepted, choice_finished, delta, delta_with, finished, hello, logprob,
};
use crate::{ApiKeys, ServerConfig};

const HI: &str = r#"{"messages":[{"role":"user","content":"hi"}]}"#;

#[tokio::test]
async fn a_chat_comes_as_one_body_with_usage() {
    let server = Server::default().await;
    let (head, body) = post(server.address, "/v1/chat/completions", HI).await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("application/json"));
    expect![[r#"{"id":"-","object":"chat.completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"message":{"role":"assistant","content":"Hello, wörld","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":1}}}"#]].assert_eq(&masked(&body));
    let (head, again) = post(server.address, "/chat/completions", HI).await;
    assert_eq!((head.status, masked(&again)), (200, masked(&body)));
}

#[tokio::test]
async fn choices_of_several_prompts_are_numbered_prompt_by_prompt() {
    let server = Server::default().await;
    for prompt in ["a", "b"] {
        let mut steps = vec![accepted()];
        for choice in [1, 0] {
            steps.push(delta(choice, 0, &format!("{prompt}{choice}")));
            steps.push(choice_finished(choice, FinishReason::Length, 1, ""));
        }
        steps.push(finished(2));
        server.service.push(Ok(steps));
    }
    let body = r#"{"prompt":["a","b"],"n":2,"max_tokens":1}"#;
    let (head, body) = post(server.address, "/v1/completions", body).await;
    assert_eq!(head.status, 200);
    expect![[r#"{"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"a0","logprobs":null,"finish_reason":"length"},{"index":1,"text":"a1","logprobs":null,"finish_reason":"length"},{"index":2,"text":"b0","logprobs":null,"finish_reason":"length"},{"index":3,"text":"b1","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":6,"completion_tokens":4,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":2}}}"#]].assert_eq(&masked(&body));
    let requests = server.service.requests.lock().unwrap();
    assert_eq!(requests[0].prompt, Prompt::Text("a".to_owned()));
    assert_eq!(requests[1].prompt, Prompt::Text("b".to_owned()));
    assert_ne!(requests[0].sampling.seed, requests[1].sampling.seed);
}

#[tokio::test]
async fn logprobs_of_a_completion_say_where_their_text_begins() {
    let server = Server::default().await;
    server.service.push(Ok(vec![
        accepted(),
        delta_with(0, 0, "\u{e4}b", vec![logprob(1, -0.5, "\u{e4}b")]),
        delta_with(
            0,
            1,
            "c",
            vec![logprob(2, -1.5, "c"), logprob(3, -0.5, "d")],
        ),
        choice_finished(0, FinishReason::Length, 2, ""),
        finished(2),
    ]));
    let body = r#"{"prompt":"p","logprobs":1}"#;
    let (_head, body) = post(server.address, "/v1/completions", body).await;
    expect![[r#"{"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"äbc","logprobs":{"text_offset":[0,2],"token_logprobs":[-0.5,-1.5],"tokens":["äb","c"],"top_logprobs":[{"äb":-0.5},{"d":-0.5,"c":-1.5}]},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}}"#]].assert_eq(&masked(&body));
}

#[tokio::test]
async fn any_model_name_is_served_under_the_real_one() {
    let config = ServerConfig {
        served_names: vec!["org/tiny:q4".to_owned(), "tiny".to_owned()],
        ..ServerConfig::default()
    };
    let server = Server::start(config).await;
    let body = HI.replace("{\"messages", "{\"model\":\"gpt-3.5-turbo\",\"messages");
    let (head, body) = post(server.address, "/v1/chat/completions", &body).await;
    assert_eq!(head.status, 200);
    assert!(body.contains("\"model\":\"org/tiny:q4\""), "{body}");
    for known in ["org/tiny:q4", "org%2Ftiny:q4", "tiny", "Tiny%20Test"] {
        let (head, _body) = get(server.address, &format!("/v1/models/{known}")).await;
        assert_eq!(head.status, 200, "{known}");
    }
    let (head, body) = get(server.address, "/v1/models/org/other").await;
    assert_eq!(head.status, 404);
    assert!(body.contains("\"code\":\"model_not_found\""), "{body}");
}

#[tokio::test]
async fn the_model_is_listed_for_every_kind_of_client() {
    let server = Server::default().await;
    let (head, body) = get(server.address, "/v1/models").await;
    assert_eq!(head.status, 200);
    let mut list: serde_json::Value = serde_json::from_str(&body).unwrap();
    list["data"][0]["created"] = 0.into();
    list["data"][0]["created_at"] = "".into();
    expect![[r#"
        {
          "object": "list",
          "data": [
            {
              "id": "Tiny Test",
              "object": "model",
              "created": 0,
              "owned_by": "relight",
              "root": "Tiny Test",
              "max_model_len": 2048,
              "status": {
                "value": "loaded"
              },
              "meta": {
                "n_ctx": 2048,
                "n_ctx_train": 4096,
                "n_vocab": 256,
                "n_params": 1000,
                "size": 9000,
                "architecture": "llama",
                "quantization": "Q4_1",
                "has_chat_template": true
              },
              "type": "model",
              "display_name": "Tiny Test",
              "created_at": ""
            }
          ],
          "has_more": false,
          "first_id": "Tiny Test",
          "last_id": "Tiny Test"
        }"#]]
    .assert_eq(&format!("{list:#}"));
    assert_eq!(get(server.address, "/models").await.1, body);
}

#[tokio::test]
async fn probes_and_pages_answer() {
    let server = Server::default().await;
    for (path, wanted) in [
        (
            "/",
            "Relight serves Tiny Test at /v1 and is ready; see /health and /metrics\n",
        ),
        ("/livez", "alive\n"),
        ("/readyz", "ready\n"),
        ("/version", "{\"version\":\"0.0.0\",\"name\":\"relight\"}"),
    ] {
        let (head, body) = get(server.address, path).await;
        assert_eq!((head.status, body.as_str()), (200, wanted), "{path}");
    }
    for path in ["/health", "/v1/health"] {
        let (head, body) = get(server.address, path).await;
        assert_eq!(head.status, 200);
        assert!(
            body.starts_with("{\"status\":\"healthy\",\"issues\":[],\"degraded\":false"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn head_is_answered_like_get_without_a_body() {
    let server = Server::default().await;
    let mut client = Client::connect(server.address).await;
    for path in ["/", "/health", "/v1/models", "/metrics"] {
        client
            .send(&format!("HEAD {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        // A body would be taken for the next answer's head.
        assert_eq!(client.head().await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn metrics_count_answers_and_latencies() {
    let server = Server::default().await;
    post(server.address, "/v1/chat/completions", HI).await;
    get(server.address, "/nowhere").await;
    let (head, body) = get(server.address, "/metrics").await;
    assert_eq!(head.status, 200);
    assert_eq!(
        head.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    for line in [
        "relight_http_answers_total{model_name=\"Tiny Test\",route=\"/v1/chat/completions\",status=\"200\"} 1\n",
        "relight_http_answers_total{model_name=\"Tiny Test\",route=\"other\",status=\"404\"} 1\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"Tiny Test\"} 1\n",
        "vllm:inter_token_latency_seconds_count{model_name=\"Tiny Test\"} 2\n",
        "vllm:e2e_request_latency_seconds_count{model_name=\"Tiny Test\"} 1\n",
        "vllm:cache_config_info{model_name=\"Tiny Test\",block_size=\"64\",num_gpu_blocks=\"128\"} 1\n",
    ] {
        assert!(body.contains(line), "no {line}in\n{body}");
    }
}

#[tokio::test]
async fn keys_guard_all_but_probes() {
    let config = ServerConfig {
        api_keys: ApiKeys::new(vec!["secret".to_owned()]),
        ..ServerConfig::default()
    };
    let server = Server::start(config).await;
    for (path, status) in [
        ("/health", 200),
        ("/", 200),
        ("/v1/models", 401),
        ("/nowhere", 401),
    ] {
        assert_eq!(get(server.address, path).await.0.status, status, "{path}");
    }
    for key in ["authorization: Bearer secret", "x-api-key: secret"] {
        let request = format!("GET /v1/models HTTP/1.1\r\nhost: a\r\n{key}\r\n\r\n");
        assert_eq!(send(server.address, &request).await.0.status, 200, "{key}");
    }
    let request = "GET /v1/models HTTP/1.1\r\nhost: a\r\nx-api-key: secreT\r\n\r\n";
    let (head, body) = send(server.address, request).await;
    assert_eq!(head.header("www-authenticate"), Some("Bearer"));
    expect![[r#"{"error":{"message":"the API key is not valid","type":"invalid_request_error","param":null,"code":"invalid_api_key","request_id":"-","retryable":false},"detail":"the API key is not valid"}"#]].assert_eq(&masked(&body));
}

#[tokio::test]
async fn pages_of_this_machine_may_ask() {
    let server = Server::default().await;
    let preflight = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: a\r\norigin: http://localhost:3000\r\n\
        access-control-request-method: POST\r\naccess-control-request-headers: x-stainless-os\r\n\r\n";
    let (head, _body) = send(server.address, preflight).await;
    assert_eq!(head.status, 204);
    let allowed = |head: &super::client::AnswerHead| {
        head.header("access-control-allow-origin")
            .map(str::to_owned)
    };
    assert_eq!(allowed(&head).as_deref(), Some("http://localhost:3000"));
    assert_eq!(
        head.header("access-control-allow-headers"),
        Some("x-stainless-os")
    );
    for (origin, wanted) in [
        ("http://127.0.0.1:5173", true),
        ("http://example.org", false),
    ] {
        let request = format!("GET /v1/models HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\n\r\n");
        let (head, _body) = send(server.address, &request).await;
        assert_eq!(allowed(&head).is_some(), wanted, "{origin}");
    }
}

#[tokio::test]
async fn a_request_keeps_the_name_that_its_client_gave_it() {
    let server = Server::default().await;
    let request = "GET /nowhere HTTP/1.1\r\nhost: a\r\nx-request-id: mine-7\r\n\r\n";
    let (head, body) = send(server.address, request).await;
    assert_eq!(head.header("x-request-id"), Some("mine-7"));
    assert!(body.contains("\"request_id\":\"mine-7\""), "{body}");
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = Server::default().await;
    let mut client = Client::connect(server.address).await;
    for _ in 0..3 {
        server.service.push(Ok(hello()));
        client.post("/v1/chat/completions", HI).await;
        assert_eq!(client.answer().await.0.status, 200);
    }
}

#[tokio::test]
async fn a_quarantine_is_listed_and_lifted() {
    let server = Server::default().await;
    let request = |fingerprint| QuarantinedRequest {
        fingerprint,
        left: Duration::from_secs(9),
        fault_id: FaultId(3),
    };
    *server.service.quarantined.lock().unwrap() = vec![request(0xabc), request(0xdef)];
    let (head, body) = get(server.address, "/v1/quarantine").await;
    assert_eq!(head.status, 200);
    expect![[r#"{"object":"list","data":[{"object":"quarantine","fingerprint":"0000000000000abc","seconds_left":9,"fault_id":"f3"},{"object":"quarantine","fingerprint":"0000000000000def","seconds_left":9,"fault_id":"f3"}]}"#]].assert_eq(&body);
    for (path, status) in [("/abc", 200), ("/abc", 404), ("/xyz", 404), ("", 200)] {
        let line = format!("DELETE /v1/quarantine{path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let (head, body) = send(server.address, &line).await;
        assert_eq!(head.status, status, "{path}: {body}");
    }
    let (_head, body) = get(server.address, "/v1/quarantine").await;
    assert_eq!(body, r#"{"object":"list","data":[]}"#);
}

#[tokio::test]
async fn faults_are_listed_from_a_number_on() {
    let server = Server::default().await;
    let (head, body) = get(server.address, "/v1/faults?after=7").await;
    assert_eq!(
        (head.status, body.as_str()),
        (200, r#"{"object":"list","data":[]}"#)
    );
    assert_eq!(
        get(server.address, "/v1/faults?after=x").await.0.status,
        400
    );
    assert_eq!(get(server.address, "/v1/faults/f7").await.0.status, 404);
}
