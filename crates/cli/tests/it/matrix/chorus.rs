//! Three healthy streams beside whatever goes wrong.

use serde_json::{Value, json};

use crate::resume::stripped;
use crate::server::{Server, long_prompt};

/// Tokens of each stream.
const TOKENS: u32 = 200;
/// Events after which a stream is in full swing.
const WARM_EVENTS: usize = 6;

/// What the streams say when nothing goes wrong.
pub(super) struct Chorus {
    undisturbed: Vec<Vec<Value>>,
}

fn parts() -> Vec<Value> {
    let part = |text: &str| {
        let mut body = long_prompt(text, TOKENS);
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        body
    };
    let mut sampled = part("The second voice");
    sampled["temperature"] = json!(0.9);
    sampled["seed"] = json!(11);
    sampled["logprobs"] = json!(2);
    let mut penalized = part("The third voice");
    penalized["repetition_penalty"] = json!(1.1);
    penalized["frequency_penalty"] = json!(0.3);
    penalized["n"] = json!(2);
    vec![part("The first voice"), sampled, penalized]
}

impl Chorus {
    /// Records the streams on a quiet server.
    pub(super) fn record(server: &Server) -> Self {
        let undisturbed = parts()
            .iter()
            .map(|body| stripped(server.post("/v1/completions", body).events()))
            .collect();
        Self { undisturbed }
    }

    /// Starts the streams, disturbs them in full swing, and proves that every byte is the
    /// same and that the server is whole afterwards.
    pub(super) fn stays_the_same<T>(&self, server: &Server, disturb: impl FnOnce() -> T) -> T {
        let (found, result) = std::thread::scope(|scope| {
            let streams: Vec<_> = parts()
                .into_iter()
                .map(|body| scope.spawn(move || server.post("/v1/completions", &body)))
                .collect();
            let mut answers: Vec<_> = streams
                .into_iter()
                .map(|stream| stream.join().expect("a stream"))
                .collect();
            let mut first: Vec<Vec<String>> = Vec::new();
            for answer in &mut answers {
                assert_eq!(answer.status, 200);
                let events = (0..WARM_EVENTS).map(|_| answer.event().expect("an event"));
                first.push(events.collect());
            }
            let rest: Vec<_> = answers
                .into_iter()
                .zip(first)
                .map(|(mut answer, mut events)| {
                    scope.spawn(move || {
                        events.extend(answer.events());
                        stripped(events)
                    })
                })
                .collect();
            let result = disturb();
            let rest = rest
                .into_iter()
                .map(|stream| stream.join().expect("the rest"));
            (rest.collect::<Vec<_>>(), result)
        });
        for (voice, (found, expected)) in found.iter().zip(&self.undisturbed).enumerate() {
            let first = found
                .iter()
                .zip(expected)
                .position(|(found, expected)| found != expected);
            assert!(
                found == expected,
                "voice {voice}, event {first:?} of {}",
                expected.len()
            );
            assert_eq!(found.last(), Some(&json!("[DONE]")));
        }
        is_whole(server);
        result
    }
}

/// Nothing is left of any fault: the next request is answered, slots and pages are free, the
/// audits found nothing.
pub(super) fn is_whole(server: &Server) {
    let next = server.complete(&long_prompt("And then", 3));
    assert_eq!(next["usage"]["completion_tokens"], json!(3));
    assert_eq!(server.get("/readyz").status, 200);
    for gauge in [
        "relight_sequences_running",
        "relight_sequences_waiting",
        "relight_requests_in_flight",
        "relight_pages_used",
        "relight_ledger_bytes",
    ] {
        falls_to_zero(server, gauge);
    }
    for counter in [
        "relight_audit_failures_total",
        "relight_invariant_breaches_total",
    ] {
        assert_eq!(super::counted(server, counter, ""), 0.0, "{counter}");
    }
}

/// An engine tells its numbers a moment after it has become idle.
fn falls_to_zero(server: &Server, gauge: &str) {
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    for _ in 0..200 {
        if server.metric(gauge, "") == 0.0 {
            return;
        }
        let look_every = std::time::Duration::from_millis(25);
        silence.recv_timeout(look_every).unwrap_err();
    }
    panic!("{gauge} stays at {}", server.metric(gauge, ""));
}
