//! Rows 1-4, 7, 8, 13, 33-37, 39, 41, 42: the engine dies, hangs or lies, through nobody's
//! fault. Nobody fails.

use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::chorus::{Chorus, is_whole};
use super::{counted, once, restarts};
use crate::server::{Server, long_prompt};

/// One server for many deaths: fewer than its restart budget.
fn every_death_is_a_pause(orders: &[(&str, &str, &str)]) {
    let server = Server::start(&["--hang-timeout", "1"]);
    let chorus = Chorus::record(&server);
    for (place, blow, cause) in orders {
        let before = restarts(&server, cause);
        chorus.stays_the_same(&server, || server.inject(&once(place, blow)));
        assert_eq!(restarts(&server, cause), before + 1.0, "{place} {blow}");
    }
    assert_eq!(counted(&server, "relight_quarantines_total", ""), 0.0);
    assert_eq!(counted(&server, "relight_requests_total", "failed"), 0.0);
}

#[test]
fn an_abort_or_a_fault_in_a_step_is_a_pause() {
    every_death_is_a_pause(&[
        ("shared", "abort", "abort"),
        ("shared", "segfault", "signal"),
        ("confirm", "segfault", "signal"),
        ("shared", "stack-overflow", "abort"),
        ("shared", "exhaust", "abort"),
        ("shared", "exit", "exit"),
    ]);
}

#[test]
fn a_hang_in_a_step_is_a_pause() {
    every_death_is_a_pause(&[("shared", "hang", "hang"), ("emit", "hang", "hang")]);
}

#[test]
fn a_stopped_engine_is_replaced() {
    let server = Server::start(&["--hang-timeout", "1"]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || {
        kill_process(server.engine_pid(), Signal::STOP).expect("stop the engine");
    });
    assert_eq!(restarts(&server, "hang"), 1.0);
}

#[test]
fn a_pipe_that_breaks_or_lies_is_a_pause() {
    every_death_is_a_pause(&[
        ("pipe", "garbage", "ipc"),
        // Its end may be seen before its exit.
        ("pipe", "cut", ""),
        ("pipe", "wrong-id", "protocol"),
        ("pipe", "skip", "protocol"),
    ]);
}

#[test]
fn a_token_that_comes_twice_is_dropped() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || server.inject(&once("pipe", "repeat")));
    assert_eq!(counted(&server, "relight_duplicate_events_total", ""), 1.0);
    assert_eq!(counted(&server, "relight_engine_restarts_total", ""), 0.0);
}

#[test]
fn a_panic_in_a_step_replaces_the_generator_and_not_the_process() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    let engine = server.engine_pid();
    for (place, blow) in [
        ("shared", "panic"),
        ("shared", "error"),
        ("confirm", "panic"),
        ("logits", "non-finite"),
    ] {
        let before = counted(&server, "relight_latches_total", "");
        chorus.stays_the_same(&server, || server.inject(&once(place, blow)));
        let after = counted(&server, "relight_latches_total", "");
        assert_eq!(after, before + 1.0, "{place} {blow}");
    }
    assert_eq!(server.engine_pid(), engine);
    assert_eq!(counted(&server, "relight_requests_total", "failed"), 0.0);
}

#[test]
fn a_newcomer_in_prefill_survives_a_crash_that_is_not_its_own() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    let newcomer = long_prompt("A newcomer came by and", 30);
    let expected = server.complete(&newcomer)["choices"].clone();
    let found = chorus.stays_the_same(&server, || {
        server.inject(&json!({
            "place": "shared", "blow": "segfault", "marker": "newcomer", "times": 1
        }));
        server.complete(&newcomer)["choices"].clone()
    });
    assert!(found == expected);
    assert_eq!(restarts(&server, "signal"), 1.0);
}

#[test]
fn a_second_death_during_replay_or_load_is_a_longer_pause() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || {
        // Once in every engine: this one dies in its next step, the one after in its first.
        server.inject(&json!({
            "place": "load", "blow": "exit", "times": 1, "skip": 1, "every_engine": true
        }));
        server.inject(&once("shared", "abort"));
    });
    is_whole(&server);
}

#[test]
fn an_idle_engine_that_dies_is_replaced_before_anybody_asks() {
    let server = Server::start(&[]);
    server.kill_engine();
    is_whole(&server);
    assert_eq!(restarts(&server, "killed"), 1.0);
}

#[test]
fn a_slow_machine_is_not_taken_for_a_stuck_one() {
    let server = Server::start(&["--hang-timeout", "1", "-b", "64"]);
    let body = json!({ "prompt": vec![9; 500], "max_tokens": 2, "ignore_eos": true });
    server.inject(&json!({ "place": "shared", "blow": "pause" }));
    // Eight steps of half a second: together far longer than an engine may be at one thing.
    let answer = server.complete(&body);
    assert_eq!(answer["usage"]["completion_tokens"], json!(2));
    assert_eq!(counted(&server, "relight_engine_restarts_total", ""), 0.0);
}

#[test]
fn health_tells_the_truth_while_an_engine_is_replaced() {
    let server = Server::start(&[]);
    // The next engine takes half a second to load: time to look.
    server.inject(&json!({
        "place": "load", "blow": "pause", "times": 1, "every_engine": true
    }));
    let mut streamed = long_prompt("A long story", 1500);
    streamed["stream"] = json!(true);
    let mut answer = server.post("/v1/completions", &streamed);
    answer.event().expect("an event");
    server.kill_engine();
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    let mut states = Vec::new();
    while states.last().map(String::as_str) != Some("ready") || states.len() < 2 {
        let state = server.get("/readyz");
        let (status, word) = (state.status, state.text().trim().to_owned());
        assert_eq!(status == 200, word == "ready", "{word}");
        assert_eq!(server.get("/livez").status, 200);
        if states.last() != Some(&word) {
            states.push(word);
        }
        assert!(states.len() <= 3, "{states:?}");
        let look_every = std::time::Duration::from_millis(10);
        silence.recv_timeout(look_every).unwrap_err();
    }
    assert!(
        states.ends_with(&["recovering".to_owned(), "ready".to_owned()]),
        "{states:?}"
    );
    let events = answer.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    assert_eq!(counted(&server, "relight_recovery_seconds_count", ""), 1.0);
    assert!(counted(&server, "relight_tokens_replayed_total", "") > 0.0);
    assert_eq!(counted(&server, "relight_requests_resumed_total", ""), 1.0);
}
