//! Row 36: the engine is killed at every token of one reply, and nobody can tell.

use serde_json::{Value, json};

use crate::resume::stripped;
use crate::server::{Server, long_prompt};

const TOKENS: usize = 40;
const CHOICES: usize = 3;
/// Deaths of one server: fewer than its restart budget.
const DEATHS: usize = 7;

fn body() -> Value {
    let mut body = long_prompt("The engine may go at any time, for", 40);
    body["n"] = json!(CHOICES);
    body["temperature"] = json!(0.9);
    body["seed"] = json!(5);
    body["repetition_penalty"] = json!(1.1);
    body["presence_penalty"] = json!(0.4);
    body["frequency_penalty"] = json!(0.2);
    body["logprobs"] = json!(2);
    body
}

/// `ask` must give the same whatever happens to the engine.
fn sweep<T: PartialEq>(ask: impl Fn(&Server) -> T) {
    let undisturbed = ask(&Server::start(&[]));
    // Every token, of one choice or another.
    let kills: Vec<usize> = (0..TOKENS)
        .map(|token| token * CHOICES + token % CHOICES)
        .collect();
    for kills in kills.chunks(DEATHS) {
        let server = Server::start(&[]);
        for deltas in kills {
            server.inject(&json!({
                "place": "pipe", "blow": "kill", "skip": deltas, "times": 1
            }));
            let found = ask(&server);
            assert!(found == undisturbed, "killed after {deltas} deltas");
        }
        let killed = super::restarts(&server, "killed");
        assert_eq!(killed, kills.len() as f64, "every kill struck");
    }
}

#[test]
fn a_kill_at_any_token_changes_no_streamed_byte() {
    let mut streamed = body();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({ "include_usage": true });
    sweep(|server| stripped(server.post("/v1/completions", &streamed).events()));
}

#[test]
fn a_kill_at_any_token_changes_no_collected_byte() {
    sweep(|server| {
        let answer = server.complete(&body());
        (answer["choices"].clone(), answer["usage"].clone())
    });
}
