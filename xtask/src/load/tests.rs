use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

const USAGE: &str =
    r#"data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;

/// A server that answers one request with these events and then `tail`.
fn server(events: &[&str], tail: &'static str) -> Client {
    let mut response = String::from(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    for event in events {
        response += &format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2);
    }
    response += tail;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}}") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        connection.write_all(response.as_bytes()).unwrap();
    });
    Client::new(port)
}

fn text(text: &str) -> String {
    format!(r#"data: {{"choices":[{{"index":0,"text":"{text}","finish_reason":null}}]}}"#)
}

const FINISH: &str = r#"data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#;
const END: &str = "0\r\n\r\n";

fn failure(events: &[&str], tail: &'static str) -> String {
    format!(
        "{:#}",
        complete(server(events, tail), "time", 2).unwrap_err()
    )
}

#[test]
fn a_clean_stream_is_a_completion() {
    let events = [
        &text("a"),
        ": keep-alive",
        &text("b"),
        FINISH,
        USAGE,
        "data: [DONE]",
    ];
    let completion = complete(server(&events, END), "time", 2).unwrap();
    assert_eq!(completion.prompt_tokens, 3);
    assert_eq!(completion.completion_tokens, 2);
    assert_eq!(completion.gaps.len(), 1);
    assert!(
        completion.sent <= completion.first_text && completion.first_text <= completion.last_text
    );
}

#[test]
fn a_stream_that_is_not_finished_or_cut_is_an_error() {
    assert!(failure(&[&text("a"), USAGE, "data: [DONE]"], END).contains("without finish reason"));
    assert!(failure(&[&text("a"), FINISH, USAGE], END).contains("without finish reason"));
    assert!(failure(&[&text("a"), FINISH, USAGE, "data: [DONE]"], "").contains("connection ended"));
}

#[test]
fn an_error_event_or_wrong_usage_is_an_error() {
    let error = r#"data: {"error":{"message":"worker lost"}}"#;
    assert!(failure(&[&text("a"), error], END).contains("worker lost"));
    assert!(failure(&[&text("a"), FINISH, "data: [DONE]"], END).contains("no usage"));
    let three = USAGE.replace(":2", ":3").replace(":5", ":6");
    assert!(
        failure(&[&text("a"), FINISH, &three, "data: [DONE]"], END).contains("3 completion tokens")
    );
    let sum = USAGE.replace(":5", ":7");
    assert!(failure(&[&text("a"), FINISH, &sum, "data: [DONE]"], END).contains("not the sum"));
}

#[test]
fn words_repeat_for_a_seed_and_differ_between_seeds() {
    assert_eq!(words(50, 1), words(50, 1));
    assert_ne!(words(50, 1).get(..40), words(50, 2).get(..40));
    assert_eq!(words(50, 1).split_whitespace().count(), 50);
}
