//! Reading a request's body within bounds of size, time and memory.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use futures_core::Stream;
use relight_protocol::limits::{LARGE_BODIES_MAX, LARGE_BODY_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::config::ServerConfig;
use crate::refusal::Refusal;

/// How much more than the limit is read and thrown away before a body is refused: a client
/// that is still sending would not see an answer on a closed connection.
const SURPLUS_FACTOR: usize = 4;

/// A whole body.
#[derive(Debug)]
pub(crate) struct RequestBody {
    bytes: Vec<u8>,
    /// A large body counts as one until it is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl RequestBody {
    /// Turns the body into something smaller; a large one off the threads that serve
    /// streams, which would stand still meanwhile.
    pub(crate) async fn parse<T: Send + 'static>(
        self,
        parse: impl FnOnce(&[u8]) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.permit.is_none() {
            return parse(&self.bytes);
        }
        match spawn_blocking(move || parse(&self.bytes)).await {
            Ok(parsed) => parsed,
            Err(_panic) => Err(Refusal::HandlerPanicked),
        }
    }
}

/// Reads bodies; all connections share one.
#[derive(Debug)]
pub(crate) struct BodyReader {
    large_bodies: Arc<Semaphore>,
}

impl BodyReader {
    pub(crate) fn new() -> Self {
        Self {
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
        }
    }

    /// Reads a whole body, or says why not.
    pub(crate) async fn read(
        &self,
        config: &ServerConfig,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<RequestBody, Refusal> {
        let limit_bytes = config.body_bytes_max;
        // A client that asks first has not sent anything that would have to be drained.
        if headers.contains_key(header::EXPECT)
            && stated_length(headers).is_some_and(|length| length > limit_bytes)
        {
            return Err(Refusal::BodyTooLarge { limit_bytes });
        }
        match timeout(config.body_read, self.collect(limit_bytes, body)).await {
            Ok(read) => read,
            Err(_elapsed) => {
                let limit_ms = u64::try_from(config.body_read.as_millis()).unwrap_or(u64::MAX);
                Err(Refusal::BodyTooSlow { limit_ms })
            }
        }
    }

    async fn collect(&self, limit_bytes: usize, body: Body) -> Result<RequestBody, Refusal> {
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::new();
        let mut permit = None;
        let mut read_bytes = 0_usize;
        while let Some(piece) = poll_fn(|cx| Pin::new(&mut pieces).poll_next(cx)).await {
            let piece = piece.map_err(|_broken| Refusal::BodyBroken)?;
            read_bytes = read_bytes.saturating_add(piece.len());
            if read_bytes > limit_bytes {
                bytes = Vec::new();
                if read_bytes > limit_bytes.saturating_mul(SURPLUS_FACTOR) {
                    break;
                }
                continue;
            }
            if permit.is_none() && read_bytes > LARGE_BODY_BYTES {
                let acquired = Arc::clone(&self.large_bodies).try_acquire_owned();
                permit = Some(acquired.map_err(|_none_left| Refusal::BodiesTooMany)?);
            }
            bytes.extend_from_slice(&piece);
        }
        if read_bytes > limit_bytes {
            return Err(Refusal::BodyTooLarge { limit_bytes });
        }
        Ok(RequestBody { bytes, permit })
    }
}

fn stated_length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
