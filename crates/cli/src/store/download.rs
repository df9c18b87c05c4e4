//! Fetches one file over HTTP, going on where an earlier connection or run broke off.

use std::io::Read;

use ureq::Body;
use ureq::http::{Response, header};

use super::error::StoreError;
use super::http::Client;
use super::limits::{CONNECTIONS_MAX, IDLE_CONNECTIONS_MAX, MODEL_BYTES_MAX};
use super::part::Part;
use crate::output::Progress;

/// Appends to `part` until it holds `bytes`, or until the server says that this is all.
///
/// # Errors
/// `Stalled` if connections bring nothing new; what is there stays for the next run.
pub(crate) fn fetch(
    client: &Client,
    url: &str,
    bytes: Option<u64>,
    part: &mut Part,
    progress: &mut Progress,
) -> Result<(), StoreError> {
    let limit = bytes.unwrap_or(MODEL_BYTES_MAX);
    if part.bytes() > limit {
        part.restart()?;
    }
    let mut idle = 0;
    for _ in 0..CONNECTIONS_MAX {
        if bytes == Some(part.bytes()) {
            return Ok(());
        }
        let before = part.bytes();
        progress.set(before);
        // Nothing but a connection that breaks is tried again, and at once: a server that
        // answers with an error has been heard.
        match connection(client, url, limit, part, progress) {
            Ok(End::Whole) if bytes.is_none() => return Ok(()),
            Ok(End::Whole | End::Broken) | Err(StoreError::Unreachable { .. }) => {}
            Err(error) => return Err(error),
        }
        idle = if part.bytes() == before { idle + 1 } else { 0 };
        if idle == IDLE_CONNECTIONS_MAX {
            break;
        }
    }
    if bytes == Some(part.bytes()) {
        return Ok(());
    }
    Err(StoreError::Stalled {
        url: url.to_owned(),
        bytes: part.bytes(),
        connections: idle,
    })
}

/// How a connection ended.
enum End {
    /// The server sent everything that it had announced.
    Whole,
    Broken,
}

fn connection(
    client: &Client,
    url: &str,
    limit: u64,
    part: &mut Part,
    progress: &mut Progress,
) -> Result<End, StoreError> {
    let response = client.get(url, part.bytes())?;
    match response.status().as_u16() {
        206 if starts_at(&response, part.bytes()) => {}
        // The whole file from its beginning: this server knows no ranges.
        200 => part.restart()?,
        // Our part does not belong to what is there now.
        206 | 416 => {
            part.restart()?;
            return Ok(End::Broken);
        }
        status => {
            return Err(StoreError::Status {
                url: url.to_owned(),
                status,
            });
        }
    }
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => return Ok(End::Whole),
            Ok(count) => count,
            Err(_lost) => return Ok(End::Broken),
        };
        let found = part.bytes().saturating_add(count as u64);
        if found > limit {
            part.restart()?;
            return Err(StoreError::TooLarge {
                file: url.to_owned(),
                found,
                limit,
            });
        }
        part.append(buffer.get(..count).unwrap_or_default())?;
        progress.set(found);
    }
}

/// Whether `Content-Range: bytes START-END/TOTAL` starts where we asked.
fn starts_at(response: &Response<Body>, start: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE);
    let range = range.and_then(|range| range.to_str().ok());
    let found = range
        .and_then(|range| range.strip_prefix("bytes "))
        .and_then(|range| range.split_once('-'))
        .and_then(|(found, _)| found.parse::<u64>().ok());
    found == Some(start)
}
