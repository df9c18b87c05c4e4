//! Rows 24-27, 40 and the request rung: a fault in one request's own phases.

use serde_json::json;

use super::chorus::{Chorus, is_whole};
use super::counted;
use crate::server::{Server, long_prompt};

const PHASES: [&str; 5] = ["prepare", "admit", "sample", "detokenize", "emit"];

#[test]
fn a_panic_in_any_private_phase_fails_that_request_alone() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    let engine = server.engine_pid();
    chorus.stays_the_same(&server, || {
        for phase in PHASES {
            server.inject(&json!({
                "place": phase, "blow": "panic", "marker": "fragile", "times": 1
            }));
            let answer = server.post("/v1/completions", &long_prompt("Something fragile", 20));
            assert_eq!(answer.status, 503, "{phase}");
            assert_eq!(answer.header("retry-after"), Some("1"), "{phase}");
            let error = answer.json()["error"].clone();
            assert_eq!(error["code"], "internal_error", "{phase}");
            assert!(error["fault_id"].is_string(), "{error}");
        }
    });
    assert_eq!(server.engine_pid(), engine, "no engine was replaced");
    assert_eq!(counted(&server, "relight_latches_total", ""), 0.0);
    assert_eq!(counted(&server, "relight_contained_faults_total", ""), 5.0);
    let health = server.get("/health").json();
    assert_eq!(health["degraded"], json!(true), "{health}");
    assert_eq!(health["engine"]["recent_faults"], json!(5), "{health}");
    assert_eq!(health["engine"]["contained_faults"], json!(5), "{health}");
}

#[test]
fn memory_that_one_request_cannot_have_is_its_own_error() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || {
        server
            .inject(&json!({ "place": "admit", "blow": "error", "marker": "greedy", "times": 1 }));
        let answer = server.post("/v1/completions", &long_prompt("A greedy one", 20));
        assert_eq!(answer.status, 503);
        assert_eq!(answer.json()["error"]["code"], "insufficient_memory");
    });
}

#[test]
fn a_fault_in_mid_stream_ends_with_an_error_frame_and_nothing_else() {
    let server = Server::start(&[]);
    server.inject(&json!({
        "place": "emit", "blow": "panic", "marker": "halfway", "skip": 12, "times": 1
    }));
    let mut body = long_prompt("Only halfway", 60);
    body["stream"] = json!(true);
    let events = server.post("/v1/completions", &body).events();
    let last: serde_json::Value =
        serde_json::from_str(events.last().expect("a last event")).expect("JSON");
    assert_eq!(last["error"]["code"], "internal_error");
    assert_eq!(last["error"]["partial"]["completion_tokens"], json!(12));
    assert!(last.get("choices").is_none());
    let is_end = |event: &String| event == "[DONE]" || event.contains("\"finish_reason\":\"");
    assert!(!events.iter().any(is_end));
    is_whole(&server);
}

/// The scenario of a pool of four slots, one request that fails in prefill and a healthy one
/// of 1,500 tokens beside it.
#[test]
fn a_healthy_stream_of_1500_tokens_outlives_a_neighbour_that_fails_in_prefill() {
    let server = Server::start(&["-np", "4"]);
    let engine = server.engine_pid();
    let healthy = long_prompt("A healthy request", 1500);
    let mut streamed = healthy.clone();
    streamed["stream"] = json!(true);
    let mut answer = server.post("/v1/completions", &streamed);
    answer.event().expect("an event");
    server.inject(&json!({ "place": "admit", "blow": "panic", "marker": "sickly", "times": 1 }));
    let failed = server.post("/v1/completions", &long_prompt("A sickly request", 20));
    assert_eq!(failed.status, 503);
    let events = answer.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let whole = server.complete(&healthy);
    assert_eq!(whole["usage"]["completion_tokens"], json!(1500));
    let text: String = events
        .iter()
        .filter_map(|event| serde_json::from_str::<serde_json::Value>(event).ok())
        .filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    let expected = whole["choices"][0]["text"].as_str().expect("a text");
    assert!(expected.ends_with(&text), "the first event was read apart");
    assert_eq!(server.engine_pid(), engine);
    assert_eq!(counted(&server, "relight_engine_restarts_total", ""), 0.0);
    assert_eq!(counted(&server, "relight_latches_total", ""), 0.0);
}

#[test]
fn a_writer_that_panics_ends_its_stream_with_an_error_and_cancels_its_request() {
    let server = Server::start(&[]);
    server.inject(&json!({ "place": "stream", "blow": "panic", "skip": 8, "times": 1 }));
    let mut body = long_prompt("Somebody writes", 1500);
    body["stream"] = json!(true);
    let events = server.post("/v1/completions", &body).events();
    let last = events.last().expect("a last event");
    assert!(last.starts_with("{\"error\":"), "{last}");
    assert!(events.len() < 100, "it went on for {} events", events.len());
    // Its slot and pages are free long before 1,500 tokens are made.
    is_whole(&server);
    assert_eq!(counted(&server, "relight_requests_total", "cancelled"), 1.0);
}
