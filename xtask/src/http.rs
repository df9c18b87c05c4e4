//! A client for one HTTP/1.1 exchange with a server on this machine, with the arrival time
//! of every server-sent event. Written out, because a benchmark must not measure its client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::terminal::now;

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// No answer of a test or benchmark takes longer; a server that hangs must not hang us.
const READ_WAIT: Duration = Duration::from_secs(300);
const BODY_BYTES_MAX: u64 = 64 << 20;

/// A server on the loopback interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    address: SocketAddr,
}

/// One server-sent event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) at: Instant,
    pub(crate) data: String,
}

/// A streamed answer, read to its end.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) sent: Instant,
    pub(crate) status: u16,
    pub(crate) events: Vec<Event>,
    /// What came instead of events, when the answer is no event stream.
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(port: u16) -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The status of a GET, whose body is read and dropped.
    pub(crate) fn get(&self, path: &str) -> Result<u16> {
        let mut exchange = self.send(&format!("GET {path} HTTP/1.1\r\n"), "")?;
        exchange.read_body()?;
        Ok(exchange.status)
    }

    pub(crate) fn stream(&self, path: &str, body: &Value) -> Result<Stream> {
        let mut exchange = self.send(&format!("POST {path} HTTP/1.1\r\n"), &body.to_string())?;
        let mut stream = Stream {
            sent: exchange.sent,
            status: exchange.status,
            events: Vec::new(),
            body: String::new(),
        };
        if exchange.is_event_stream {
            exchange.read_events(|event| {
                stream.events.push(event);
                Ok(())
            })?;
        } else {
            stream.body = exchange.read_body()?;
        }
        Ok(stream)
    }

    /// The status of a POST whose events are looked at as they come; other bodies are dropped.
    pub(crate) fn follow(
        &self,
        path: &str,
        body: &Value,
        on_event: impl FnMut(Event) -> Result<()>,
    ) -> Result<u16> {
        let mut exchange = self.send(&format!("POST {path} HTTP/1.1\r\n"), &body.to_string())?;
        if exchange.is_event_stream {
            exchange.read_events(on_event)?;
        }
        Ok(exchange.status)
    }

    fn send(&self, request_line: &str, body: &str) -> Result<Exchange> {
        let connection = TcpStream::connect_timeout(&self.address, CONNECT_WAIT)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(READ_WAIT))?;
        let mut request = format!(
            "{request_line}Host: {}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        request.push_str(body);
        let sent = now();
        (&connection).write_all(request.as_bytes())?;
        Exchange::read_head(connection, sent)
    }
}

/// An answer whose head has been read.
struct Exchange {
    reader: BufReader<TcpStream>,
    sent: Instant,
    status: u16,
    is_chunked: bool,
    is_event_stream: bool,
    content_length: Option<u64>,
}

impl Exchange {
    fn read_head(connection: TcpStream, sent: Instant) -> Result<Self> {
        let mut reader = BufReader::new(connection);
        let status_line = read_line(&mut reader)?;
        let status = status_line
            .split(' ')
            .nth(1)
            .context("no status in the answer")?;
        let mut exchange = Self {
            status: status
                .parse()
                .with_context(|| format!("bad status line: {status_line}"))?,
            reader,
            sent,
            is_chunked: false,
            is_event_stream: false,
            content_length: None,
        };
        loop {
            let line = read_line(&mut exchange.reader)?.to_ascii_lowercase();
            let Some((name, value)) = line.split_once(':') else {
                ensure!(line.is_empty(), "bad header line: {line}");
                return Ok(exchange);
            };
            match (name, value.trim()) {
                ("transfer-encoding", value) => exchange.is_chunked = value == "chunked",
                ("content-type", value) => {
                    exchange.is_event_stream = value.starts_with("text/event-stream")
                }
                ("content-length", value) => exchange.content_length = Some(value.parse()?),
                _ => {}
            }
        }
    }

    fn read_body(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        if self.is_chunked {
            while let Some(chunk) = self.read_chunk()? {
                bytes.extend_from_slice(&chunk);
                ensure!(
                    bytes.len() as u64 <= BODY_BYTES_MAX,
                    "the answer is too long"
                );
            }
        } else {
            let limit = self
                .content_length
                .unwrap_or(BODY_BYTES_MAX)
                .min(BODY_BYTES_MAX);
            (&mut self.reader).take(limit).read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8(bytes)?)
    }

    /// The next chunk, or nothing after the last one. A connection that ends before the
    /// last chunk is an error: that is how the death of a server shows.
    fn read_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let line = read_line(&mut self.reader)?;
        let length = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16)
            .with_context(|| format!("bad chunk length: {line:?}"))?;
        let mut chunk = vec![0; length];
        self.reader.read_exact(&mut chunk)?;
        ensure!(
            read_line(&mut self.reader)?.is_empty(),
            "a chunk is longer than it says"
        );
        Ok((length > 0).then_some(chunk))
    }

    fn read_events(&mut self, mut on_event: impl FnMut(Event) -> Result<()>) -> Result<()> {
        ensure!(
            self.is_chunked,
            "an event stream that ends with the connection cannot be told from a cut one"
        );
        let mut pending = Vec::new();
        while let Some(chunk) = self.read_chunk()? {
            let at = now();
            pending.extend_from_slice(&chunk);
            while let Some(end) = pending.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = pending.drain(..end + 2).collect();
                if let Some(data) = event_data(&String::from_utf8(event)?) {
                    on_event(Event { at, data })?;
                }
            }
        }
        Ok(())
    }
}

/// The `data:` lines of an event; nothing for a comment.
fn event_data(event: &str) -> Option<String> {
    let lines: Vec<&str> = event
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n").trim().to_owned())
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    if reader.take(64 << 10).read_line(&mut line)? == 0 {
        bail!("the connection ended in the middle of the answer");
    }
    Ok(line.trim_end().to_owned())
}
