//! Reading a request's body within bounds of size, time and memory.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use futures_core::Stream;
use relight_protocol::limits::{LARGE_BODIES_MAX, LARGE_BODY_BYTES};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::config::ServerConfig;
use crate::refusal::Refusal;

/// How much more than the limit is read and thrown away before a body is refused: a client
/// that is still sending would not see an answer on a closed connection.
const SURPLUS_FACTOR: usize = 4;

/// Reads bodies; all connections share one.
#[derive(Debug)]
pub(crate) struct BodyReader {
    large_bodies: Semaphore,
}

impl BodyReader {
    pub(crate) fn new() -> Self {
        Self {
            large_bodies: Semaphore::new(LARGE_BODIES_MAX),
        }
    }

    /// Reads a whole body, or says why not.
    pub(crate) async fn read(
        &self,
        config: &ServerConfig,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Vec<u8>, Refusal> {
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

    async fn collect(&self, limit_bytes: usize, body: Body) -> Result<Vec<u8>, Refusal> {
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::new();
        let mut permit: Option<SemaphorePermit<'_>> = None;
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
                let acquired = self.large_bodies.try_acquire();
                permit = Some(acquired.map_err(|_none_left| Refusal::BodiesTooMany)?);
            }
            bytes.extend_from_slice(&piece);
        }
        if read_bytes > limit_bytes {
            return Err(Refusal::BodyTooLarge { limit_bytes });
        }
        Ok(bytes)
    }
}

fn stated_length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
