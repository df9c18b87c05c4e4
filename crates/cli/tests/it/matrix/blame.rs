//! Rows 5, 6, 27, 28, 38: who is guilty fails alone, and soon.

use serde_json::json;

use super::chorus::{Chorus, is_whole};
use super::{counted, whoever};
use crate::server::{Server, long_prompt, relight};

#[test]
fn a_killer_fails_alone_after_two_deaths_and_is_refused_for_a_while() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    let killer = long_prompt("This is poison for engines", 20);
    chorus.stays_the_same(&server, || {
        server.inject(&whoever("poison", "shared", "abort"));
        let answer = server.post("/v1/completions", &killer);
        assert_eq!(answer.status, 500);
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], "worker_crashed");
        assert!(error["fault_id"].is_string(), "{error}");
    });
    let deaths = counted(&server, "relight_engine_restarts_total", "abort");
    assert_eq!(deaths, 2.0);
    assert_eq!(counted(&server, "relight_quarantines_total", ""), 1.0);
    for again in 1..=5 {
        let mut body = killer.clone();
        // A retry is recognised whatever its seed.
        body["seed"] = json!(again);
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, 422);
        assert_eq!(answer.json()["error"]["code"], "request_quarantined");
    }
    assert_eq!(counted(&server, "relight_quarantine_hits_total", ""), 5.0);
    assert_eq!(
        counted(&server, "relight_engine_restarts_total", "abort"),
        deaths
    );
    let quarantine = server.get("/v1/quarantine").json();
    assert_eq!(
        quarantine["data"].as_array().map(Vec::len),
        Some(1),
        "{quarantine}"
    );
    assert_eq!(
        crate::http::send(server.port, "DELETE", "/v1/quarantine", None).status,
        200
    );
    let quarantine = server.get("/v1/quarantine").json();
    assert_eq!(
        quarantine["data"].as_array().map(Vec::len),
        Some(0),
        "{quarantine}"
    );
}

#[test]
fn a_killer_in_a_private_phase_is_known_at_once() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    for (phase, text) in [
        ("prepare", "venom of preparing"),
        ("sample", "toxin of sampling"),
    ] {
        let marker = text.split(' ').next().expect("a word");
        chorus.stays_the_same(&server, || {
            server.inject(&whoever(marker, phase, "abort"));
            let answer = server.post("/v1/completions", &long_prompt(text, 20));
            assert_eq!(answer.status, 500, "{phase}");
        });
    }
    assert_eq!(
        counted(&server, "relight_engine_restarts_total", "abort"),
        4.0
    );
}

#[test]
fn one_row_that_is_not_a_number_fails_alone() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || {
        server.inject(&whoever("nonsense", "logits", "non-finite"));
        let answer = server.post("/v1/completions", &long_prompt("Some nonsense", 20));
        assert_eq!(answer.status, 503);
        assert_eq!(answer.json()["error"]["code"], "non_finite_logits");
    });
    assert_eq!(counted(&server, "relight_engine_restarts_total", ""), 0.0);
    assert_eq!(counted(&server, "relight_latches_total", ""), 0.0);
}

#[test]
fn an_engine_that_dies_at_every_start_is_given_up_and_probed() {
    let server = Server::start(&[]);
    server.inject(&json!({ "place": "load", "blow": "exit", "every_engine": true, "times": 1 }));
    server.kill_engine();
    let answer = server.post("/v1/completions", &long_prompt("Is anybody there", 5));
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    assert_eq!(server.get("/readyz").status, 503);
    assert_eq!(server.get("/livez").status, 200);
    assert_eq!(server.get("/health").json()["state"], "failed");
}

#[test]
fn a_fault_of_the_handler_is_that_requests_alone() {
    let server = Server::start(&[]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || {
        let order = json!({ "place": "handler", "blow": "panic", "marker": "clumsy", "times": 1 });
        server.inject(&order);
        let answer = server.post("/v1/completions", &long_prompt("A clumsy one", 5));
        assert_eq!(answer.status, 500);
    });
    is_whole(&server);
}

/// What a command prints about this server.
fn printed(server: &Server, arguments: &[&str]) -> String {
    let url = format!("http://127.0.0.1:{}", server.port);
    let mut command = relight(arguments);
    let output = command.args(["--url", &url]).output().expect("a command");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_commands_tell_what_happened_and_let_the_guilty_in_again() {
    let server = Server::start(&[]);
    let killer = long_prompt("A strychnine of a prompt", 20);
    let ordered = [
        "inject",
        "shared",
        "abort",
        "--marker",
        "strychnine",
        "--times",
        "2",
        "--every-engine",
    ];
    assert_eq!(printed(&server, &ordered).trim(), "ordered");
    let answer = server.post("/v1/completions", &killer).json();
    let fault_id = answer["error"]["fault_id"].as_str().expect("a fault's id");

    let faults = printed(&server, &["faults"]);
    assert_eq!(faults.matches("engine_death").count(), 2, "{faults}");
    assert!(
        faults.contains("in step") && faults.contains("suspects r"),
        "{faults}"
    );
    let one = printed(&server, &["faults", fault_id]);
    assert!(one.starts_with(&format!("{fault_id} ")), "{one}");
    let json = printed(&server, &["faults", "--json"]);
    assert!(json.contains("\"engine_up_ms\""), "{json}");

    let list = printed(&server, &["quarantine", "list"]);
    let fingerprint = list.split(' ').next().expect("a fingerprint");
    assert!(list.contains(" s left, fault f"), "{list}");
    let lifted = printed(&server, &["quarantine", "lift", fingerprint]);
    assert_eq!(lifted.trim(), "1 lifted");
    assert_eq!(printed(&server, &["quarantine", "list"]), "");
    // The order goes to every engine, twice in each: this one has had none of it yet.
    let again = server.post("/v1/completions", &killer);
    assert_ne!(again.status, 422, "it is let in, and judged anew");
}
