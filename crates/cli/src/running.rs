//! A client of a running server, for the commands that look at one.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use ureq::http::Method;
use ureq::http::header::AUTHORIZATION;

use crate::args::ServerArgs;

/// A server that says nothing for so long is not there.
const TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct RunningServer {
    agent: ureq::Agent,
    url: String,
    authorization: Option<String>,
}

impl RunningServer {
    pub(crate) fn new(args: &ServerArgs) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            url: args.url.trim_end_matches('/').to_owned(),
            authorization: args.api_key.as_ref().map(|key| format!("Bearer {key}")),
        }
    }

    /// Sends a request with or without a body, and reads the JSON that answers it.
    ///
    /// # Errors
    /// If the server is not there, or refuses; its own words are in the error.
    pub(crate) fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let url = format!("{}{path}", self.url);
        let mut request = ureq::http::Request::builder().method(method).uri(&url);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let answer = self.agent.run(request.body(body)?);
        let mut answer = answer.with_context(|| format!("no server answers at {}", self.url))?;
        let text = answer.body_mut().read_to_string()?;
        let json: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if answer.status().is_success() {
            return Ok(json);
        }
        let message = json.pointer("/error/message").unwrap_or(&json);
        bail!("{url} answers {}: {message}", answer.status().as_u16());
    }
}

/// What a list of the server's holds.
pub(crate) fn entries(answer: &Value) -> impl Iterator<Item = &Value> {
    let data = answer.get("data").and_then(Value::as_array);
    data.into_iter().flatten()
}
