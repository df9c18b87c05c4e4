//! Connections that misbehave, and the server's end.

use std::time::Duration;

use relight_protocol::FinishReason;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::client::{Client, get};
use super::scripted::{Server, Step, accepted, choice_finished, delta, finished};
use crate::ServerConfig;

const STREAM: &str = r#"{"messages":[{"role":"user","content":"hi"}],"stream":true}"#;

#[tokio::test]
async fn half_sent_requests_hold_up_nobody() {
    let server = Server::default().await;
    let mut silent = Vec::new();
    for index in 0..64 {
        let mut client = Client::connect(server.address).await;
        match index % 3 {
            0 => {}
            1 => client.send("POST /v1/chat/comple").await,
            _ => {
                client
                    .send("POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
                    .await
            }
        }
        silent.push(client);
    }
    assert_eq!(get(server.address, "/v1/models").await.0.status, 200);
    drop(silent);
}

#[tokio::test]
async fn connections_that_send_no_request_are_closed() {
    let config = ServerConfig {
        header_read: Duration::from_millis(30),
        ..ServerConfig::default()
    };
    let server = Server::start(config).await;
    let mut idle = Client::connect(server.address).await;
    let mut half = Client::connect(server.address).await;
    half.send("GET /live").await;
    assert!(idle.closed().await);
    half.closed().await;
    assert_eq!(get(server.address, "/livez").await.0.status, 200);
}

#[tokio::test]
async fn connections_above_the_bound_are_told_so() {
    let config = ServerConfig {
        connections_max: 2,
        ..ServerConfig::default()
    };
    let server = Server::start(config).await;
    let mut first = Client::connect(server.address).await;
    let mut second = Client::connect(server.address).await;
    for client in [&mut first, &mut second] {
        client.send("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(client.answer().await.0.status, 200);
    }
    let mut third = Client::connect(server.address).await;
    let (head, body) = third.answer().await;
    assert_eq!((head.status, head.header("retry-after")), (503, Some("1")));
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["error"]["code"], "overloaded");
    assert!(third.closed().await);
    drop(first);
    drop(second);
    // The server notices a closed connection when it does; until then the answer is 503.
    loop {
        let mut next = Client::connect(server.address).await;
        next.stream.writable().await.unwrap();
        drop(
            next.stream
                .try_write(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"),
        );
        if next.status_if_any().await == Some(200) {
            break;
        }
    }
}

#[tokio::test]
async fn a_shutdown_lets_running_streams_finish() {
    let mut server = Server::default().await;
    let (open, gate) = oneshot::channel();
    server.service.push(Ok(vec![
        accepted(),
        delta(0, 0, "a"),
        Step::Gate(gate),
        choice_finished(0, FinishReason::Stop, 1, ""),
        finished(1),
    ]));
    let mut client = Client::connect(server.address).await;
    client.post("/v1/chat/completions", STREAM).await;
    assert_eq!(client.head().await.status, 200);
    let mut idle = Client::connect(server.address).await;
    idle.send("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await.0.status, 200);
    server.begin_shutdown();
    assert!(idle.closed().await, "idle connections end at once");
    assert!(TcpStream::connect(server.address).await.is_err());
    open.send(()).unwrap();
    assert_eq!(client.chunks().await.last().unwrap(), "data: [DONE]\n\n");
    server.ended().await;
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut_and_seen_to_be() {
    let config = ServerConfig {
        shutdown_timeout: Duration::from_millis(30),
        ..ServerConfig::default()
    };
    let mut server = Server::start(config).await;
    server
        .service
        .push(Ok(vec![accepted(), delta(0, 0, "a"), Step::Hang]));
    let mut client = Client::connect(server.address).await;
    client.post("/v1/chat/completions", STREAM).await;
    assert_eq!(client.head().await.status, 200);
    server.begin_shutdown();
    server.ended().await;
    server.service.until(|ends| ends.cancelled == 1).await;
    while let Some(chunk) = client.chunk().await {
        assert!(
            !chunk.is_empty(),
            "the body must not end as if it were complete"
        );
    }
}
