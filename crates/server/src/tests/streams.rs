//! Streamed answers, byte for byte.

use std::time::Duration;

use expect_test::expect;
use relight_protocol::{Fault, FinishReason};
use relight_supervisor::StreamEvent;
use tokio::sync::oneshot;

use super::client::{Client, masked, stream};
use super::scripted::{
    Server, Step, accepted, choice_finished, delta, delta_with, failed, finished, hello, logprob,
};
use crate::ServerConfig;

const CHAT: &str = "/v1/chat/completions";
const HI: &str = r#"{"messages":[{"role":"user","content":"hi"}],"stream":true}"#;

fn hi_with(fields: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"stream":true,{fields}}}"#)
}

#[tokio::test]
async fn a_chat_is_role_text_reason_and_done() {
    let server = Server::default().await;
    let (head, events) = stream(server.address, CHAT, HI).await;
    assert_eq!(head.status, 200);
    assert_eq!(
        head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert!(head.header("x-request-id").unwrap().starts_with("req-"));
    expect![[r#"
        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":", wö"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"rld"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]

    "#]].assert_eq(&events);
}

#[tokio::test]
async fn usage_comes_last_if_asked_for() {
    let server = Server::default().await;
    let body = hi_with(r#""stream_options":{"include_usage":true}"#);
    let (_head, events) = stream(server.address, CHAT, &body).await;
    expect![[r#"
        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":", wö"},"logprobs":null,"finish_reason":null}],"usage":null}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"rld"},"logprobs":null,"finish_reason":null}],"usage":null}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":1}}}

        data: [DONE]

    "#]].assert_eq(&events);
}

#[tokio::test]
async fn two_choices_interleave_and_end_each_on_its_own() {
    let server = Server::default().await;
    server.service.push(Ok(vec![
        accepted(),
        delta(1, 0, "B"),
        delta(0, 0, "A"),
        choice_finished(1, FinishReason::Length, 1, ""),
        delta(0, 1, "a"),
        choice_finished(0, FinishReason::Stop, 2, ""),
        finished(3),
    ]));
    let (_head, events) = stream(server.address, CHAT, &hi_with(r#""n":2"#)).await;
    expect![[r#"
        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":1,"delta":{"content":"B"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"A"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":1,"delta":{},"logprobs":null,"finish_reason":"length"}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]

    "#]].assert_eq(&events);
}

#[tokio::test]
async fn logprobs_come_with_their_token_even_if_its_text_is_withheld() {
    let server = Server::default().await;
    let script = || {
        Ok(vec![
            accepted(),
            delta_with(
                0,
                0,
                "a",
                vec![logprob(1, -0.5, "a"), logprob(2, -1.5, "b")],
            ),
            delta_with(
                0,
                1,
                "",
                vec![logprob(3, -0.25, "c"), logprob(2, -2.5, "b")],
            ),
            choice_finished(0, FinishReason::Stop, 2, "c"),
            finished(2),
        ])
    };
    server.service.push(script());
    let body = hi_with(r#""logprobs":true,"top_logprobs":2"#);
    let (_head, events) = stream(server.address, CHAT, &body).await;
    expect![[r#"
        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.5,"bytes":[98]}]}],"refusal":null},"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"c","logprob":-0.25,"bytes":[99],"top_logprobs":[{"token":"c","logprob":-0.25,"bytes":[99]},{"token":"b","logprob":-2.5,"bytes":[98]}]}],"refusal":null},"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{"content":"c"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"-","object":"chat.completion.chunk","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]

    "#]].assert_eq(&events);
    server.service.push(script());
    let body = r#"{"prompt":"hi","logprobs":1,"stream":true}"#;
    let (_head, events) = stream(server.address, "/v1/completions", body).await;
    expect![[r#"
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"a","logprobs":{"text_offset":[0],"token_logprobs":[-0.5],"tokens":["a"],"top_logprobs":[{"a":-0.5}]},"finish_reason":null}]}

        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"","logprobs":{"text_offset":[1],"token_logprobs":[-0.25],"tokens":["c"],"top_logprobs":[{"c":-0.25}]},"finish_reason":null}]}

        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"c","logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]

    "#]].assert_eq(&events);
}

#[tokio::test]
async fn completions_of_several_prompts_are_numbered_through() {
    let server = Server::default().await;
    for text in ["first", "second"] {
        let echo = Some(format!("{text}: "));
        server.service.push(Ok(vec![
            Step::Event(StreamEvent::Accepted {
                prompt_tokens: 2,
                prompt_text: echo,
            }),
            delta(0, 0, text),
            choice_finished(0, FinishReason::Stop, 1, ""),
            finished(1),
        ]));
    }
    let body =
        r#"{"prompt":["a","b"],"echo":true,"stream":true,"stream_options":{"include_usage":true}}"#;
    let (_head, events) = stream(server.address, "/completions", body).await;
    let mut lines: Vec<&str> = events.split("\n\n").collect();
    // The prompts run side by side, so only the end of the stream has a fixed place.
    lines[..6].sort_unstable();
    expect![[r#"
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"first","logprobs":null,"finish_reason":null}],"usage":null}
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":0,"text":"first: ","logprobs":null,"finish_reason":null}],"usage":null}
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":1,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":1,"text":"second","logprobs":null,"finish_reason":null}],"usage":null}
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[{"index":1,"text":"second: ","logprobs":null,"finish_reason":null}],"usage":null}
        data: {"id":"-","object":"text_completion","created":-,"model":"Tiny Test","system_fingerprint":"fp_0000000000000000000000000000feed","choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":2}}}
        data: [DONE]
    "#]].assert_eq(&lines.join("\n"));
}

#[tokio::test]
async fn a_failure_after_the_headers_is_an_error_event_and_nothing_more() {
    let server = Server::default().await;
    server.service.push(Ok(vec![
        accepted(),
        delta(0, 0, "par"),
        delta(1, 0, "done"),
        choice_finished(1, FinishReason::Stop, 1, ""),
        delta(0, 1, "t\u{e4}"),
        failed(Fault::EngineCrashed),
    ]));
    let body = hi_with(r#""n":2,"stream_options":{"include_usage":true}"#);
    let (head, events) = stream(server.address, CHAT, &body).await;
    assert_eq!(head.status, 200);
    let last = events.trim_end().rsplit("\n\n").next().unwrap();
    expect![[r#"data: {"error":{"message":"the engine died while it worked on this request","type":"server_error","param":null,"code":"worker_crashed","request_id":"-","retryable":false,"partial":{"completion_tokens":3,"choices":[{"index":0,"text_chars":5,"finish_reason":null},{"index":1,"text_chars":4,"finish_reason":"stop"}]}}}"#]].assert_eq(last);
    assert!(!events.contains("[DONE]"));
    assert_eq!(
        events.matches("\"finish_reason\":\"").count(),
        2,
        "{events}"
    );
    assert!(!events.contains("\"total_tokens\""));
}

#[tokio::test]
async fn a_stream_that_just_ends_is_no_success() {
    let server = Server::default().await;
    server
        .service
        .push(Ok(vec![accepted(), delta(0, 0, "half")]));
    let (_head, events) = stream(server.address, CHAT, HI).await;
    let last = events.trim_end().rsplit("\n\n").next().unwrap();
    expect![[r#"data: {"error":{"message":"no engine is available","type":"server_error","param":null,"code":"engine_unavailable","request_id":"-","retryable":true,"partial":{"completion_tokens":1,"choices":[{"index":0,"text_chars":4,"finish_reason":null}]}}}"#]].assert_eq(last);
}

#[tokio::test]
async fn a_stream_that_skips_its_acceptance_is_no_success() {
    let server = Server::default().await;
    for steps in [vec![finished(0)], vec![delta(0, 0, "a"), finished(1)]] {
        server.service.push(Ok(steps));
        let (head, body) = super::client::post(server.address, CHAT, HI).await;
        assert_eq!(head.status, 503, "{body}");
    }
}

#[tokio::test]
async fn prompts_wait_for_each_other_to_be_accepted() {
    let server = Server::default().await;
    let (open, gate) = oneshot::channel();
    server.service.push(Ok(hello()));
    server.service.push(Ok(vec![
        Step::Gate(gate),
        failed(Fault::invalid("prompt[1]", "no")),
    ]));
    let mut client = Client::connect(server.address).await;
    let body = r#"{"prompt":["a","b"],"stream":true}"#;
    client.post("/v1/completions", body).await;
    server.service.until(|ends| ends.submitted == 2).await;
    open.send(()).unwrap();
    let (head, body) = client.answer().await;
    assert_eq!(head.status, 400);
    assert!(body.contains("\"param\":\"prompt[1]\""), "{body}");
    server.service.until(|ends| ends.cancelled == 1).await;
}

#[tokio::test]
async fn a_panic_in_a_stream_is_an_error_event() {
    let server = Server::default().await;
    server
        .service
        .push(Ok(vec![accepted(), delta(0, 0, "half"), Step::Panic]));
    let (_head, events) = stream(server.address, CHAT, HI).await;
    let last = events.trim_end().rsplit("\n\n").next().unwrap();
    expect![[r#"data: {"error":{"message":"an internal error while the request was handled","type":"server_error","param":null,"code":"internal_error","request_id":"-","retryable":false,"partial":{"completion_tokens":1,"choices":[{"index":0,"text_chars":4,"finish_reason":null}]}}}"#]].assert_eq(last);
    let (head, _body) = super::client::get(server.address, "/livez").await;
    assert_eq!(head.status, 200);
}

#[tokio::test]
async fn silence_is_filled_with_comments() {
    let config = ServerConfig {
        sse_keepalive: Duration::from_millis(20),
        ..ServerConfig::default()
    };
    let server = Server::start(config).await;
    let (open, gate) = oneshot::channel();
    server.service.push(Ok(vec![
        accepted(),
        delta(0, 0, "a"),
        Step::Gate(gate),
        choice_finished(0, FinishReason::Stop, 1, ""),
        finished(1),
    ]));
    let mut client = Client::connect(server.address).await;
    client.post(CHAT, HI).await;
    assert_eq!(client.head().await.status, 200);
    for _ in ["role", "text"] {
        assert!(client.chunk().await.unwrap().starts_with("data: "));
    }
    assert_eq!(client.chunk().await.unwrap(), ": keep-alive\n\n");
    assert_eq!(client.chunk().await.unwrap(), ": keep-alive\n\n");
    open.send(()).unwrap();
    assert_eq!(client.chunks().await.last().unwrap(), "data: [DONE]\n\n");
}

#[tokio::test]
async fn headers_wait_for_the_first_token_but_not_for_ever() {
    let config = ServerConfig {
        first_token_wait: Duration::from_millis(20),
        ..ServerConfig::default()
    };
    let server = Server::start(config).await;
    let (open, gate) = oneshot::channel();
    server.service.push(Ok(vec![
        accepted(),
        Step::Gate(gate),
        failed(Fault::NonFiniteLogits),
    ]));
    let mut client = Client::connect(server.address).await;
    client.post(CHAT, HI).await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.chunk().await.unwrap(), ": keep-alive\n\n");
    open.send(()).unwrap();
    let rest = masked(&client.chunks().await.concat());
    expect![[r#"
        data: {"error":{"message":"the model produced non-finite numbers for this request","type":"server_error","param":null,"code":"non_finite_logits","request_id":"-","retryable":true,"partial":{"completion_tokens":0,"choices":[{"index":0,"text_chars":0,"finish_reason":null}]}}}

    "#]].assert_eq(&rest);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_wherever_its_request_is() {
    let server = Server::default().await;
    let scripts = [
        // Queued, before the first token, and in the middle of its answer.
        vec![Step::Hang],
        vec![accepted(), Step::Hang],
        vec![accepted(), delta(0, 0, "a"), Step::Hang],
    ];
    let mut gone = 0;
    for steps in scripts {
        for body in [HI.to_owned(), HI.replace("true", "false")] {
            let steps = steps.iter().map(|step| match step {
                Step::Event(event) => Step::Event(event.clone()),
                _ => Step::Hang,
            });
            server.service.push(Ok(steps.collect()));
            let mut client = Client::connect(server.address).await;
            client.post(CHAT, &body).await;
            server
                .service
                .until(|ends| ends.submitted == gone + 1)
                .await;
            drop(client);
            gone += 1;
            server.service.until(|ends| ends.cancelled == gone).await;
        }
    }
    let (_head, metrics) = super::client::get(server.address, "/metrics").await;
    let left = "route=\"/v1/chat/completions\",status=\"499\"} 5\n";
    assert!(
        metrics.contains(left),
        "all but the one whose headers were sent: {metrics}"
    );
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody_else() {
    let server = Server::default().await;
    let Step::Event(endless) = delta(0, 0, &"x".repeat(1000)) else {
        return;
    };
    server
        .service
        .push(Ok(vec![accepted(), Step::Forever(endless)]));
    let mut lazy = Client::connect(server.address).await;
    lazy.post(CHAT, HI).await;
    assert_eq!(lazy.head().await.status, 200);
    let (head, events) = stream(server.address, CHAT, HI).await;
    assert_eq!(head.status, 200);
    assert!(events.ends_with("data: [DONE]\n\n"));
    drop(lazy);
    server.service.until(|ends| ends.cancelled == 1).await;
}
