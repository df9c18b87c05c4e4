//! Just enough HTTP to see the very bytes that a client gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// No answer of a tiny model takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The clock of the tests that measure pauses.
#[cfg(feature = "fault-injection")]
#[expect(clippy::disallowed_methods, reason = "a client measures its own waits")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// An answer that is being read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Lines of the head, in lower case.
    headers: Vec<String>,
    reader: BufReader<TcpStream>,
    chunked: bool,
}

/// Sends a request and reads the head of the answer.
pub(crate) fn send(port: u16, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("send the head");
    stream.write_all(body.as_bytes()).expect("send the body");
    let mut reader = BufReader::new(stream);
    let status = line(&mut reader);
    let status = status
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    let mut chunked = false;
    let mut headers = Vec::new();
    loop {
        let header = line(&mut reader).to_lowercase();
        if header.is_empty() {
            break;
        }
        chunked |= header == "transfer-encoding: chunked";
        headers.push(header);
    }
    Answer {
        status,
        headers,
        reader,
        chunked,
    }
}

/// Sends a request, reads so many lines of the answer, and leaves.
#[cfg(feature = "fault-injection")]
pub(crate) fn leave(port: u16, body: &Value, lines: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("send the head");
    stream.write_all(body.as_bytes()).expect("send the body");
    let mut reader = BufReader::new(stream);
    for _ in 0..lines {
        line(&mut reader);
    }
}

fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(found, value)| (found == name).then_some(value))
    }

    /// The next chunk; `None` at the proper end of a chunked body.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&line(&mut self.reader), 16).expect("a chunk size");
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).expect("a whole chunk");
        bytes.truncate(size);
        (size > 0).then_some(bytes)
    }

    /// The next event of a stream, without comments; `None` at the proper end of the body.
    pub(crate) fn event(&mut self) -> Option<String> {
        loop {
            let chunk = String::from_utf8(self.chunk()?).expect("UTF-8 in every chunk");
            if let Some(data) = chunk.strip_prefix("data: ") {
                return Some(
                    data.strip_suffix("\n\n")
                        .expect("one event per chunk")
                        .to_owned(),
                );
            }
            assert!(
                chunk.starts_with(": "),
                "neither event nor comment: {chunk:?}"
            );
        }
    }

    /// The rest of the events.
    pub(crate) fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// The body of an answer that is not a stream.
    pub(crate) fn text(mut self) -> String {
        let mut body = Vec::new();
        if self.chunked {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else {
            self.reader.read_to_end(&mut body).expect("the body");
        }
        String::from_utf8(body).expect("UTF-8")
    }

    /// The same as JSON.
    pub(crate) fn json(self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}
