//! Who may ask: API keys, and which web pages a browser lets read our answers.

use std::fmt;
use std::hint::black_box;

use axum::http::{HeaderMap, HeaderValue, Response, header};

use crate::refusal::Refusal;

/// What needs no key: probes and the page that says who we are.
const OPEN_PATHS: [&str; 6] = [
    "/",
    "/health",
    "/v1/health",
    "/livez",
    "/readyz",
    "/version",
];

/// The keys that open the API. None at all leaves it open to everyone who can connect.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<String>);

impl ApiKeys {
    #[must_use]
    pub fn new(keys: Vec<String>) -> Self {
        Self(keys)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets a request pass, or says why not.
    pub(crate) fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.0.is_empty() || OPEN_PATHS.contains(&path) {
            return Ok(());
        }
        let mut shown = shown_keys(headers).peekable();
        if shown.peek().is_none() {
            return Err(Refusal::KeyMissing);
        }
        if shown.any(|key| self.holds(key)) {
            Ok(())
        } else {
            Err(Refusal::KeyWrong)
        }
    }

    /// Compares with every key in full, so that the time taken tells nothing about them.
    fn holds(&self, shown: &[u8]) -> bool {
        let mut found = false;
        for key in &self.0 {
            found |= black_box(is_equal(key.as_bytes(), shown));
        }
        found
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

/// Compares in a time that depends on the lengths alone.
fn is_equal(key: &[u8], shown: &[u8]) -> bool {
    let mut difference = u8::from(key.len() != shown.len());
    for (a, b) in key.iter().zip(shown) {
        difference = black_box(difference | (a ^ b));
    }
    difference == 0
}

/// Both places where clients put keys; some send both, one of them a placeholder.
fn shown_keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _key)| scheme.eq_ignore_ascii_case(b"Bearer "))
        .map(|(_scheme, key)| key.trim_ascii());
    let own = headers.get("x-api-key").map(HeaderValue::as_bytes);
    bearer.into_iter().chain(own)
}

/// Whether a page at `origin` runs on this machine.
fn is_loopback(origin: &HeaderValue) -> bool {
    let Some((scheme, authority)) = origin.to_str().ok().and_then(|o| o.split_once("://")) else {
        return false;
    };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    };
    matches!(scheme, "http" | "https") && matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Lets pages of this machine read the answer; no other page.
pub(crate) fn allow_origin<B>(request: &HeaderMap, response: &mut Response<B>) {
    let Some(origin) = request.get(header::ORIGIN) else {
        return;
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if is_loopback(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let exposed = HeaderValue::from_static("x-request-id, retry-after, x-should-retry");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

/// What a browser asks before it sends a page's request.
pub(crate) fn answer_preflight<B: Default>(request: &HeaderMap) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = axum::http::StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
    headers.insert(header::ALLOW, methods.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    // Client libraries add headers of their own; keys are checked on the request itself.
    if let Some(wanted) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    let max_age = HeaderValue::from_static("600");
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, max_age);
    response
}

#[cfg(test)]
mod tests;
