//! Failures before the headers, bodies of all bad kinds, and the concrete cases.

use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use relight_protocol::{Fault, Overload};
use relight_supervisor::Status;

use super::client::{Client, get, masked, post, send};
use super::scripted::{Server, Step, accepted, delta, failed};
use crate::ServerConfig;

const CHAT: &str = "/v1/chat/completions";

fn hi(fields: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{fields}}}"#)
}

/// Posts to Chat Completions: status, `param`, and whether the service was asked.
async fn verdict(server: &Server, body: &str) -> (u16, String, bool) {
    let before = server.service.requests.lock().unwrap().len();
    let (head, body) = post(server.address, CHAT, body).await;
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    let asked = server.service.requests.lock().unwrap().len() > before;
    let param = json["error"]["param"].as_str().unwrap_or("-").to_owned();
    (head.status, param, asked)
}

#[tokio::test]
async fn c01_a_body_that_is_not_a_chat_names_the_field() {
    let server = Server::default().await;
    let refused = |param: &str| (400, param.to_owned(), false);
    assert_eq!(verdict(&server, "{}").await, refused("messages"));
    assert_eq!(
        verdict(&server, r#"{"messages":"hi"}"#).await,
        refused("messages")
    );
    assert_eq!(verdict(&server, "no json").await, refused("-"));
    let unknown = verdict(&server, &hi(r#","mystery_sampler":0.7"#)).await;
    assert_eq!(unknown, (200, "-".to_owned(), true));
}

#[tokio::test]
async fn c02_tokens_outside_the_vocabulary_are_refused() {
    let server = Server::default().await;
    let negative = verdict(&server, &hi(r#","logit_bias":{"-1":5}"#)).await;
    assert_eq!(negative, (400, "logit_bias.-1".to_owned(), false));
    // Only the engine knows the vocabulary; its verdict keeps the field's name.
    server.service.push(Ok(vec![failed(Fault::invalid(
        "logit_bias",
        "no token 256",
    ))]));
    let beyond = verdict(&server, &hi(r#","logit_bias":{"256":5}"#)).await;
    assert_eq!(beyond, (400, "logit_bias".to_owned(), true));
}

#[tokio::test]
async fn c03_no_tokens_at_all_is_refused_the_same_way_each_time() {
    let server = Server::default().await;
    for _ in 0..2 {
        let verdict = verdict(&server, &hi(r#","max_tokens":0"#)).await;
        assert_eq!(verdict, (400, "max_tokens".to_owned(), false));
    }
    let body = r#"{"prompt":"a","max_tokens":0,"echo":true,"logprobs":1}"#;
    let (head, first) = post(server.address, "/v1/completions", body).await;
    let (_head, second) = post(server.address, "/v1/completions", body).await;
    assert_eq!((head.status, masked(&first)), (400, masked(&second)));
}

#[tokio::test]
async fn c04_no_choices_is_refused_streamed_or_not() {
    let server = Server::default().await;
    for stream in ["true", "false"] {
        let verdict = verdict(&server, &hi(&format!(r#","n":0,"stream":{stream}"#))).await;
        assert_eq!(verdict, (400, "n".to_owned(), false));
    }
}

#[tokio::test]
async fn c05_extremes_of_sampling_are_refused_or_greedy() {
    let server = Server::default().await;
    for value in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1",
        "\"1\"",
        "true",
    ] {
        let verdict = verdict(&server, &hi(&format!(r#","temperature":{value}"#))).await;
        assert_eq!(verdict, (400, "temperature".to_owned(), false), "{value}");
    }
    let zero = verdict(&server, &hi(r#","top_p":0"#)).await;
    assert_eq!(zero, (400, "top_p".to_owned(), false));
    for field in [r#","temperature":1e-12"#, r#","top_p":1e-9"#] {
        assert_eq!(verdict(&server, &hi(field)).await.0, 200, "{field}");
    }
    let requests = server.service.requests.lock().unwrap();
    assert_eq!(requests[0].sampling.temperature, 0.0);
    assert!(requests[1].sampling.top_p > 0.0);
}

#[tokio::test]
async fn c12_a_prompt_that_does_not_fit_is_refused_with_both_numbers() {
    let server = Server::default().await;
    let mut answers = Vec::new();
    for stream in ["true", "false"] {
        let (prompt_tokens, context_tokens) = (10_240, 2_048);
        let fault = Fault::ContextFull {
            prompt_tokens,
            context_tokens,
        };
        server.service.push(Ok(vec![failed(fault)]));
        let body = hi(&format!(r#","stream":{stream}"#));
        let (head, body) = post(server.address, CHAT, &body).await;
        assert_eq!(head.status, 400);
        assert_eq!(head.header("x-should-retry"), Some("false"));
        answers.push(masked(&body));
    }
    assert_eq!(answers[0], answers[1]);
    expect![[r#"{"error":{"message":"this model's maximum context length is 2048 tokens, but the prompt has 10240 tokens","type":"invalid_request_error","param":"messages","code":"context_length_exceeded","request_id":"-","retryable":false,"n_prompt_tokens":10240,"n_ctx":2048},"detail":"this model's maximum context length is 2048 tokens, but the prompt has 10240 tokens"}"#]].assert_eq(&answers[0]);
}

#[tokio::test]
async fn refusals_of_the_supervisor_say_when_to_come_again() {
    let server = Server::default().await;
    let resource = Overload::QueueFull;
    let fault = Fault::Overloaded {
        resource,
        retry_after_s: 7,
    };
    server.service.push(Err(fault.into()));
    let (head, body) = post(server.address, CHAT, &hi("")).await;
    assert_eq!(head.status, 503);
    assert_eq!(head.header("retry-after"), Some("7"));
    assert_eq!(head.header("x-should-retry"), Some("true"));
    expect![[r#"{"error":{"message":"the server is overloaded, try again in 7 s","type":"server_error","param":null,"code":"overloaded","request_id":"-","retryable":true},"detail":"the server is overloaded, try again in 7 s"}"#]].assert_eq(&masked(&body));
}

#[tokio::test]
async fn a_failure_half_way_through_keeps_what_there_was() {
    let server = Server::default().await;
    server.service.push(Ok(vec![
        accepted(),
        delta(0, 0, "half "),
        delta(0, 1, "way"),
        failed(Fault::OutOfMemory),
    ]));
    let (head, body) = post(server.address, CHAT, &hi("")).await;
    assert_eq!(head.status, 503);
    expect![[r#"{"error":{"message":"the engine ran out of memory for this request","type":"server_error","param":null,"code":"insufficient_memory","request_id":"-","retryable":true,"partial":{"completion_tokens":2,"choices":[{"index":0,"text_chars":8,"finish_reason":null,"text":"half way"}]}},"detail":"the engine ran out of memory for this request"}"#]].assert_eq(&masked(&body));
}

#[tokio::test]
async fn a_failure_before_the_first_token_of_a_stream_has_a_status() {
    let server = Server::default().await;
    server
        .service
        .push(Ok(vec![accepted(), failed(Fault::Quarantined)]));
    let (head, body) = post(server.address, CHAT, &hi(r#","stream":true"#)).await;
    assert_eq!(head.status, 422);
    assert!(!body.contains("partial"), "{body}");
}

#[tokio::test]
async fn a_panic_in_a_handler_is_a_500_and_the_server_goes_on() {
    let server = Server::default().await;
    server.service.push(Ok(vec![accepted(), Step::Panic]));
    let (head, body) = post(server.address, CHAT, &hi("")).await;
    assert_eq!(head.status, 500);
    expect![[r#"{"error":{"message":"an internal error while the request was handled","type":"server_error","param":null,"code":"internal_error","request_id":"-","retryable":false},"detail":"an internal error while the request was handled"}"#]].assert_eq(&masked(&body));
    assert_eq!(post(server.address, CHAT, &hi("")).await.0.status, 200);
}

#[tokio::test]
async fn without_a_model_all_say_so() {
    let server = Server::default().await;
    {
        let mut health = server.service.health.lock().unwrap();
        health.status = Status::Loading;
        health.card = None;
        health.retry_after_s = 3;
    }
    server.service.push(Err(Fault::EngineUnavailable.into()));
    let (head, chat) = post(server.address, CHAT, &hi("")).await;
    assert_eq!((head.status, head.header("retry-after")), (503, Some("2")));
    for path in ["/v1/models", "/v1/models/x"] {
        let (head, body) = get(server.address, path).await;
        assert_eq!((head.status, masked(&body)), (503, masked(&chat)), "{path}");
    }
    expect![[r#"{"error":{"message":"the model is still being loaded","type":"server_error","param":null,"code":"model_loading","request_id":"-","retryable":true},"detail":"the model is still being loaded"}"#]].assert_eq(&masked(&chat));
    let (head, body) = get(server.address, "/readyz").await;
    assert_eq!((head.status, body.as_str()), (503, "loading\n"));
    assert_eq!(head.header("retry-after"), Some("3"));
    assert_eq!(get(server.address, "/health").await.0.status, 503);
    assert_eq!(get(server.address, "/livez").await.0.status, 200);
    server.service.health.lock().unwrap().status = Status::Failed;
    let (_head, body) = get(server.address, "/v1/models").await;
    assert!(body.contains("\"code\":\"engine_unavailable\""), "{body}");
}

#[tokio::test]
async fn unknown_paths_and_methods_answer_in_the_same_shape() {
    let server = Server::default().await;
    let (head, body) = get(server.address, "/v2/magic").await;
    assert_eq!(head.status, 404);
    expect![[r#"{"error":{"message":"no such endpoint: /v2/magic","type":"invalid_request_error","param":null,"code":"not_found","request_id":"-","retryable":false},"detail":"no such endpoint: /v2/magic"}"#]].assert_eq(&masked(&body));
    let (head, body) = get(server.address, CHAT).await;
    assert_eq!((head.status, head.header("allow")), (405, Some("POST")));
    expect![[r#"{"error":{"message":"/v1/chat/completions does not answer GET","type":"invalid_request_error","param":null,"code":"method_not_allowed","request_id":"-","retryable":false},"detail":"/v1/chat/completions does not answer GET"}"#]].assert_eq(&masked(&body));
}

fn small_bodies() -> ServerConfig {
    ServerConfig {
        body_bytes_max: 1_000,
        body_read: Duration::from_millis(50),
        ..ServerConfig::default()
    }
}

#[tokio::test]
async fn bodies_above_the_limit_are_refused_even_while_they_are_being_sent() {
    let server = Server::start(small_bodies()).await;
    let fits = hi(&format!(",\"x\":\"{}\"", "x".repeat(900)));
    assert_eq!(post(server.address, CHAT, &fits).await.0.status, 200);
    let large = hi(&format!(",\"x\":\"{}\"", "x".repeat(2_000)));
    let (head, body) = post(server.address, CHAT, &large).await;
    assert_eq!(head.status, 413);
    expect![[r#"{"error":{"message":"the body has more than 1000 bytes","type":"invalid_request_error","param":null,"code":"request_too_large","request_id":"-","retryable":false},"detail":"the body has more than 1000 bytes"}"#]].assert_eq(&masked(&body));
    let asks = "POST /v1/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n";
    assert_eq!(send(server.address, asks).await.0.status, 413);
    let chunked = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nbb8\r\n{}\r\n0\r\n\r\n",
        "x".repeat(3_000)
    );
    assert_eq!(send(server.address, &chunked).await.0.status, 413);
}

#[tokio::test]
async fn bodies_that_come_too_slowly_are_refused() {
    let server = Server::start(small_bodies()).await;
    let mut client = Client::connect(server.address).await;
    client
        .send("POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{")
        .await;
    let (head, body) = client.answer().await;
    assert_eq!(head.status, 408);
    assert!(body.contains("\"code\":\"request_timeout\""), "{body}");
}

#[tokio::test]
async fn a_deep_or_endless_body_costs_nothing_but_its_length() {
    let server = Server::default().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!(r#"{{"messages":[{{"role":"user","content":"hi","x":{deep}}}]}}"#);
    assert_eq!(
        verdict(&server, &body).await,
        (400, "messages[0].x".to_owned(), false)
    );
    let many = format!(
        "{{{}}}",
        (0..5_000)
            .map(|i| format!("\"k{i}\":0"))
            .collect::<Vec<_>>()
            .join(",")
    );
    assert_eq!(verdict(&server, &many).await.0, 400);
    assert!(Arc::strong_count(&server.service) >= 1);
}
