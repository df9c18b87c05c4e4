//! What an operator may set about the HTTP side.

use std::time::Duration;

use relight_protocol::limits;

use crate::access::ApiKeys;

/// Settings of one server; the defaults are the bounds of `limits`.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Names of the model for clients, the first of them is the one we answer with. Without
    /// any, the model's own name counts.
    pub served_names: Vec<String>,
    pub api_keys: ApiKeys,
    /// Silence on a stream after which a comment is sent.
    pub sse_keepalive: Duration,
    /// How long a stream waits for its first token before its status is sent.
    pub first_token_wait: Duration,
    /// How long a connection may take to send a request's head.
    pub header_read: Duration,
    /// How long a request's body may take to arrive.
    pub body_read: Duration,
    pub body_bytes_max: usize,
    pub connections_max: usize,
    /// How long open requests may go on after the shutdown signal.
    pub shutdown_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            served_names: Vec::new(),
            api_keys: ApiKeys::default(),
            sse_keepalive: Duration::from_secs(10),
            first_token_wait: Duration::from_millis(limits::FIRST_TOKEN_WAIT_MS_MAX),
            header_read: Duration::from_millis(limits::HEADER_READ_MS_MAX),
            body_read: Duration::from_millis(limits::BODY_READ_MS_MAX),
            body_bytes_max: limits::BODY_BYTES_MAX,
            connections_max: limits::CONNECTIONS_MAX,
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}
