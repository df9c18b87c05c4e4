//! The barest HTTP client: it sees what is on the wire, chunk by chunk.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::scripted::PATIENCE;

/// One connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    read: Vec<u8>,
}

/// An answer's head.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl AnswerHead {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _value)| key == name);
        found.map(|(_key, value)| value.as_str())
    }
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(super) async fn post(&mut self, path: &str, body: &str) {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        self.send(&head).await;
        self.send(body).await;
    }

    /// Reads more; false at the end.
    async fn fill(&mut self) -> bool {
        let mut piece = vec![0; 65_536];
        let read = timeout(PATIENCE, self.stream.read(&mut piece)).await;
        let count = read.expect("the server is silent").unwrap_or(0);
        self.read.extend_from_slice(&piece[..count]);
        count > 0
    }

    /// Takes everything up to and including `end`; `None` if the connection ends before it.
    async fn take_until(&mut self, end: &str) -> Option<String> {
        loop {
            let found = self
                .read
                .windows(end.len())
                .position(|window| window == end.as_bytes());
            if let Some(position) = found {
                return Some(self.take(position + end.len()));
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn take_exactly(&mut self, count: usize) -> Option<String> {
        while self.read.len() < count {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.take(count))
    }

    fn take(&mut self, count: usize) -> String {
        let rest = self.read.split_off(count);
        String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap()
    }

    pub(super) async fn head(&mut self) -> AnswerHead {
        let text = self.take_until("\r\n\r\n").await.expect("no answer");
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        AnswerHead { status, headers }
    }

    /// The status of the answer, `None` if the connection ends without one.
    pub(super) async fn status_if_any(&mut self) -> Option<u16> {
        let text = self.take_until("\r\n").await?;
        text.split(' ').nth(1)?.parse().ok()
    }

    /// The next chunk of a chunked body; an empty one ends it, `None` is a broken body.
    pub(super) async fn chunk(&mut self) -> Option<String> {
        let length = self.take_until("\r\n").await?;
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        let chunk = self.take_exactly(length).await?;
        assert_eq!(self.take_exactly(2).await?, "\r\n");
        Some(chunk)
    }

    /// All chunks up to the end of the body, which must be a proper one.
    pub(super) async fn chunks(&mut self) -> Vec<String> {
        let mut chunks = Vec::new();
        loop {
            let chunk = self.chunk().await.expect("the body broke off");
            if chunk.is_empty() {
                return chunks;
            }
            chunks.push(chunk);
        }
    }

    /// An answer with a stated length.
    pub(super) async fn answer(&mut self) -> (AnswerHead, String) {
        let head = self.head().await;
        let length = head
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        let body = self.take_exactly(length).await.expect("the body broke off");
        (head, body)
    }

    /// Waits for the server to close the connection; true if it sent nothing before.
    pub(super) async fn closed(&mut self) -> bool {
        let before = self.read.len();
        while self.fill().await {}
        self.read.len() == before
    }
}

pub(super) async fn get(address: SocketAddr, path: &str) -> (AnswerHead, String) {
    send(address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await
}

pub(super) async fn post(address: SocketAddr, path: &str, body: &str) -> (AnswerHead, String) {
    let mut client = Client::connect(address).await;
    client.post(path, body).await;
    client.answer().await
}

pub(super) async fn send(address: SocketAddr, text: &str) -> (AnswerHead, String) {
    let mut client = Client::connect(address).await;
    client.send(text).await;
    client.answer().await
}

/// Posts and reads a stream: its head and its chunks, with random ids replaced.
pub(super) async fn stream(address: SocketAddr, path: &str, body: &str) -> (AnswerHead, String) {
    let mut client = Client::connect(address).await;
    client.post(path, body).await;
    let head = client.head().await;
    let chunks = client.chunks().await;
    for chunk in &chunks {
        assert!(chunk.ends_with("\n\n"), "an event is one chunk: {chunk:?}");
        assert_eq!(
            chunk.matches("\n\n").count(),
            1,
            "a chunk is one event: {chunk:?}"
        );
    }
    (head, masked(&chunks.concat()))
}

/// Replaces what differs from run to run: ids and dates.
pub(super) fn masked(text: &str) -> String {
    let mut masked = text.to_owned();
    for (start, end) in [
        ("\"id\":\"", "\""),
        ("\"created\":", ","),
        ("\"request_id\":\"", "\""),
    ] {
        let mut pieces = masked.split(start);
        let mut rest = pieces.next().unwrap().to_owned();
        for piece in pieces {
            let (_value, after) = piece.split_once(end).unwrap();
            rest.push_str(&format!("{start}-{end}{after}"));
        }
        masked = rest;
    }
    masked
}
