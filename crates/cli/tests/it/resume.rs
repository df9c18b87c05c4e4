//! The promise: an engine killed in mid-answer is a pause, and the bytes are the same.

use std::fs::{DirEntry, File};
use std::os::unix::fs::FileExt;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::server::{Server, long_prompt};

/// Events without what differs between two runs by nature, and without how much of the prompt
/// was cached: that depends on what ran before, though not on any death.
pub(crate) fn stripped(events: Vec<String>) -> Vec<Value> {
    let mut events = with_cached_tokens(events);
    for event in &mut events {
        if let Some(usage) = event.get_mut("usage").and_then(Value::as_object_mut) {
            usage.remove("prompt_tokens_details");
        }
    }
    events
}

fn with_cached_tokens(events: Vec<String>) -> Vec<Value> {
    let strip = |event: String| match serde_json::from_str::<Value>(&event) {
        Ok(mut event) => {
            if let Some(object) = event.as_object_mut() {
                object.retain(|key, _| key != "id" && key != "created");
            }
            event
        }
        Err(_) => Value::String(event),
    };
    let mut events: Vec<Value> = events.into_iter().map(strip).collect();
    // Choices are streams of their own: how they interleave is no promise.
    events.sort_by_key(|event| event["choices"][0]["index"].as_u64().unwrap_or(u64::MAX));
    events
}

/// Requests that exercise everything that a resume must rebuild.
fn requests() -> Vec<(&'static str, Value)> {
    let stream = |mut body: Value| {
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        body
    };
    let mut sampled = long_prompt("Every river begins as", 120);
    sampled["temperature"] = json!(0.9);
    sampled["seed"] = json!(7);
    sampled["n"] = json!(3);
    sampled["top_p"] = json!(0.9);
    sampled["presence_penalty"] = json!(0.5);
    sampled["repetition_penalty"] = json!(1.1);
    let mut probable = long_prompt("The engine stopped, and", 120);
    probable["logprobs"] = json!(3);
    let mut stopped = long_prompt("Once there was a", 120);
    stopped["stop"] = json!(["zzzz", "qqqq"]);
    stopped["ignore_eos"] = json!(false);
    let chat = json!({
        "messages": [{ "role": "user", "content": "Tell me about rivers." }],
        "max_tokens": 100, "temperature": 0.7, "seed": 3, "ignore_eos": true,
        "logprobs": true, "top_logprobs": 2
    });
    vec![
        (
            "/v1/completions",
            stream(long_prompt("In the beginning", 150)),
        ),
        ("/v1/completions", stream(sampled)),
        ("/v1/completions", stream(probable)),
        ("/v1/completions", stream(stopped)),
        ("/v1/chat/completions", stream(chat)),
    ]
}

#[test]
fn every_stream_survives_a_killed_engine_byte_for_byte() {
    survive_a_kill(&[]);
}

#[test]
fn streams_over_keys_and_values_in_bytes_survive_as_well() {
    survive_a_kill(&["--kv-type", "q8_0"]);
}

fn survive_a_kill(arguments: &[&str]) {
    let server = Server::start(arguments);
    let run = || -> Vec<Vec<Value>> {
        let events = |(path, body): (&str, Value)| server.post(path, &body).events();
        let requests = requests().into_iter();
        requests.map(events).map(with_cached_tokens).collect()
    };
    // Once for the prefix index, so that all runs after it find the same pages, and report it.
    run();
    let undisturbed = run();
    let unstreamed = server.complete(&long_prompt("While others stream,", 150));

    let found = std::thread::scope(|scope| {
        let plain = scope.spawn(|| server.complete(&long_prompt("While others stream,", 150)));
        let streams: Vec<_> = requests()
            .into_iter()
            .map(|(path, body)| {
                let server = &server;
                scope.spawn(move || server.post(path, &body))
            })
            .collect();
        let mut answers: Vec<_> = streams
            .into_iter()
            .map(|stream| stream.join().unwrap())
            .collect();
        // Every stream is in mid-answer: its head and some events have arrived.
        let mut first: Vec<Vec<String>> = Vec::new();
        for answer in &mut answers {
            assert_eq!(answer.status, 200);
            first.push((0..6).map(|_| answer.event().expect("an event")).collect());
        }
        server.kill_engine();
        let rest = answers.iter_mut().zip(first).map(|(answer, mut events)| {
            events.extend(answer.events());
            with_cached_tokens(events)
        });
        let streams: Vec<Vec<Value>> = rest.collect();
        (streams, plain.join().unwrap())
    });

    for ((found, expected), (path, body)) in found.0.iter().zip(&undisturbed).zip(requests()) {
        // Texts of random models fill pages: say where, not what.
        let first = found
            .iter()
            .zip(expected)
            .position(|(found, expected)| found != expected);
        assert!(found == expected, "event {first:?} of {path} {body}");
        assert_eq!(found.last(), Some(&json!("[DONE]")));
    }
    assert_eq!(found.1["choices"], unstreamed["choices"]);
    assert_eq!(found.1["usage"]["completion_tokens"], json!(150));
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(
        server.metric("relight_engine_restarts_total", "cause=\"killed\""),
        1.0
    );
}

#[test]
fn a_kill_after_any_of_the_first_tokens_changes_nothing() {
    let server = Server::start(&[]);
    let mut body = long_prompt("A kill at", 24);
    body["stream"] = json!(true);
    let expected = stripped(server.post("/v1/completions", &body).events());
    // As many kills as the restart budget allows within its period.
    for events in 0..6 {
        let mut answer = server.post("/v1/completions", &body);
        let mut found: Vec<String> = (0..events).map(|_| answer.event().unwrap()).collect();
        server.kill_engine();
        found.extend(answer.events());
        assert!(stripped(found) == expected, "killed after {events} events");
    }
}

/// A memory file of the front.
fn memory_file(server: &Server, name: &str) -> File {
    let folder = format!("/proc/{}/fd", server.pid());
    let mut paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = paths.find(|path| {
        let target = std::fs::read_link(path);
        target.is_ok_and(|target| target.to_string_lossy().contains(name))
    });
    let mut options = File::options();
    options.read(true).write(true).open(path.unwrap()).unwrap()
}

/// Stops the engine and returns when none of its threads runs.
fn stop_engine(server: &Server) {
    let engine = server.engine_pid();
    kill_process(engine, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", engine.as_raw_pid());
    let is_running = |task: std::io::Result<DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        !stat.rsplit(')').next().unwrap().starts_with(" T")
    };
    while std::fs::read_dir(&tasks).unwrap().any(is_running) {
        std::thread::yield_now();
    }
}

/// Pages that were damaged are computed again: the stream is the same, and health and metrics
/// say what was found.
#[test]
fn damaged_pages_change_no_byte_and_show_in_health() {
    let server = Server::start(&[]);
    let mut body = long_prompt(&"The river rose again that night. ".repeat(8), 150);
    body["stream"] = json!(true);
    let undisturbed = stripped(server.post("/v1/completions", &body).events());
    let mut answer = server.post("/v1/completions", &body);
    let mut events: Vec<String> = (0..40).map(|_| answer.event().unwrap()).collect();
    let pages = memory_file(&server, "relight-kv");
    stop_engine(&server);
    // The table takes a hundredth of the file: these are bits of every page.
    let length = pages.metadata().unwrap().len();
    for place in (length / 50..length).step_by(4096) {
        let mut byte = [0];
        pages.read_exact_at(&mut byte, place).unwrap();
        pages.write_all_at(&[byte[0] ^ 1], place).unwrap();
    }
    server.kill_engine();
    events.extend(answer.events());
    assert!(stripped(events) == undisturbed, "the stream has changed");
    // Answered after the numbers of the first one were told.
    server.complete(&long_prompt("And then", 1));
    assert!(server.metric("relight_pages_adopted_total", "") >= 2.0);
    assert!(server.metric("relight_pages_corrupt_total", "") >= 1.0);
    let health = server.get("/health").json();
    assert_eq!(health["degraded"], json!(true), "{health}");
}
