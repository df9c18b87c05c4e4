//! A hub on loopback that can be told to misbehave, and that remembers what it was asked.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::json;
use sha2::{Digest, Sha256};

pub(super) const REVISION: &str = "0123456789abcdef";

/// One request as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) target: String,
    pub(super) range: Option<String>,
    pub(super) authorization: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Behaviour {
    /// Path in the repository `user/name`, and content.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Stands in front of every path.
    pub(super) prefix: String,
    /// Announced instead of the true SHA-256.
    pub(super) false_sha256: Option<String>,
    /// Where data is, if it is not here.
    pub(super) redirect: Option<String>,
    /// Bytes after which each of the next data connections breaks.
    pub(super) cuts: VecDeque<usize>,
    /// Answers everything with the whole file.
    pub(super) ignores_ranges: bool,
    /// Requests without it get 401.
    pub(super) token: Option<String>,
    /// Files on one page of the list.
    pub(super) page: Option<usize>,
    pub(super) seen: Vec<Seen>,
    pub(super) stopped: bool,
}

#[derive(Debug)]
pub(super) struct FakeHub {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeHub {
    pub(super) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let shared = Arc::clone(&behaviour);
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut behaviour = shared.lock().unwrap();
                if behaviour.stopped {
                    return;
                }
                // The client may hang up first.
                behaviour.answer(connection.unwrap(), address).ok();
            }
        });
        Self {
            address,
            behaviour,
            thread: Some(thread),
        }
    }

    pub(super) fn with_file(path: &str, content: &[u8]) -> Self {
        Self::start(Behaviour {
            files: vec![(path.to_owned(), content.to_vec())],
            ..Behaviour::default()
        })
    }

    pub(super) fn endpoint(&self) -> String {
        let prefix = self.behaviour().prefix.clone();
        format!("http://{}{prefix}", self.address)
    }

    pub(super) fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    /// The requests for data so far.
    pub(super) fn data_requests(&self) -> Vec<Seen> {
        let seen = self.behaviour().seen.clone();
        seen.into_iter()
            .filter(|seen| !seen.target.contains("/api/"))
            .collect()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.behaviour().stopped = true;
        TcpStream::connect(self.address).unwrap();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Behaviour {
    fn answer(&mut self, mut stream: TcpStream, address: SocketAddr) -> std::io::Result<()> {
        let seen = read_request(&stream)?;
        self.seen.push(seen.clone());
        let wanted = self.token.as_ref().map(|token| format!("Bearer {token}"));
        if wanted.is_some() && wanted != seen.authorization {
            return respond(&mut stream, "401 Unauthorized", &[], b"");
        }
        let Some(target) = seen.target.strip_prefix(&self.prefix) else {
            return respond(&mut stream, "404 Not Found", &[], b"");
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/api/models/user/name" {
            let body = json!({"id": "user/name", "sha": REVISION}).to_string();
            return respond(&mut stream, "200 OK", &[], body.as_bytes());
        }
        if path == format!("/api/models/user/name/tree/{REVISION}") {
            return self.answer_tree(&mut stream, query, address);
        }
        let data = path.strip_prefix(&format!("/user/name/resolve/{REVISION}/"));
        let file = self
            .files
            .iter()
            .find(|(name, _)| Some(name.as_str()) == data);
        match (file.cloned(), self.redirect.clone()) {
            (Some(_), Some(redirect)) => {
                let header = format!("Location: {redirect}{path}");
                respond(&mut stream, "302 Found", &[header], b"")
            }
            (Some((_, content)), None) => self.answer_data(&mut stream, &seen, &content),
            (None, _) => respond(&mut stream, "404 Not Found", &[], b""),
        }
    }

    fn answer_tree(
        &self,
        stream: &mut TcpStream,
        query: &str,
        address: SocketAddr,
    ) -> std::io::Result<()> {
        let start: usize = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("cursor="))
            .map_or(0, |cursor| cursor.parse().unwrap());
        let page = self.page.unwrap_or(usize::MAX);
        let files = self.files.iter().skip(start).take(page);
        let entries: Vec<_> = files
            .map(|(path, content)| {
                let sha256: String = Sha256::digest(content)
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                let sha256 = self.false_sha256.clone().unwrap_or(sha256);
                json!({
                    "type": "file", "oid": "0", "size": content.len(), "path": path,
                    "lfs": {"oid": sha256, "size": content.len(), "pointerSize": 134},
                })
            })
            .chain([json!({"type": "directory", "oid": "1", "size": 0, "path": "folder"})])
            .collect();
        let next = start.saturating_add(page);
        let mut headers = Vec::new();
        if next < self.files.len() {
            let path = format!("{}/api/models/user/name/tree/{REVISION}", self.prefix);
            headers.push(format!(
                "Link: <http://{address}{path}?recursive=true&cursor={next}>; rel=\"next\""
            ));
        }
        let body = serde_json::Value::from(entries).to_string();
        respond(stream, "200 OK", &headers, body.as_bytes())
    }

    fn answer_data(
        &mut self,
        stream: &mut TcpStream,
        seen: &Seen,
        content: &[u8],
    ) -> std::io::Result<()> {
        let range = seen.range.as_ref().filter(|_| !self.ignores_ranges);
        let start = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let start: usize = start.map_or(0, |start| start.parse().unwrap());
        let total = content.len();
        if start >= total {
            return respond(stream, "416 Range Not Satisfiable", &[], b"");
        }
        let rest = &content[start..];
        let (status, headers) = if range.is_some() {
            let range = format!("Content-Range: bytes {start}-{}/{total}", total - 1);
            ("206 Partial Content", vec![range])
        } else {
            ("200 OK", Vec::new())
        };
        let cut = self.cuts.pop_front().unwrap_or(rest.len()).min(rest.len());
        write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n")?;
        for header in headers {
            write!(stream, "{header}\r\n")?;
        }
        write!(stream, "Content-Length: {}\r\n\r\n", rest.len())?;
        stream.write_all(&rest[..cut])?;
        stream.flush()
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Seen> {
    let mut seen = Seen::default();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "range" => seen.range = Some(value.to_owned()),
                "authorization" => seen.authorization = Some(value.to_owned()),
                _ => {}
            }
        } else if seen.target.is_empty() {
            seen.target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
    }
    Ok(seen)
}

fn respond(
    stream: &mut TcpStream,
    status: &str,
    headers: &[String],
    body: &[u8],
) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n")?;
    for header in headers {
        write!(stream, "{header}\r\n")?;
    }
    write!(stream, "Content-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)?;
    stream.flush()
}
