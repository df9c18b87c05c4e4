//! Random numbers and the names made of them: ids of answers, of requests, seeds.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use axum::http::{HeaderMap, HeaderValue};

/// Longest `x-request-id` that is taken over from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// The header that names a request in logs of both sides.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// 64 bits that no client can predict: the hash of nothing under a fresh key of the
/// standard library, which keys its hash tables from the operating system's random device.
pub(crate) fn random_bits() -> u64 {
    RandomState::new().hash_one(())
}

/// A name that is not used twice, e.g. `chatcmpl-0123456789abcdef0123456789abcdef`.
pub(crate) fn unique_name(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", random_bits(), random_bits())
}

/// The client's own id for its request if it is fit to be echoed, or a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> (String, HeaderValue) {
    let given = headers
        .get(REQUEST_ID)
        .filter(|value| (1..=REQUEST_ID_BYTES_MAX).contains(&value.len()))
        .and_then(|value| Some((value.to_str().ok()?.to_owned(), value.clone())));
    given.unwrap_or_else(|| {
        let name = unique_name("req");
        let header = HeaderValue::from_str(&name);
        (name, header.unwrap_or(HeaderValue::from_static("req")))
    })
}

#[cfg(test)]
mod tests;
