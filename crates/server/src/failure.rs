//! Every failure on the wire: which status, which words, whether to come again. The only
//! place that turns a `Fault` into HTTP.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use relight_protocol::limits::{RETRY_AFTER_S_MAX, RETRY_AFTER_S_MIN};
use relight_protocol::{Fault, Overload};
use relight_supervisor::RequestFailure;
use serde_json::{Map, Value, json};

use crate::refusal::Refusal;

/// Why a request has no answer: the front refused it, or it failed further down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// `prompt_param` is the field that holds the prompt in the client's dialect.
    #[error("{failure}")]
    Failed {
        failure: RequestFailure,
        prompt_param: Option<&'static str>,
    },
}

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    Never,
    /// After this many seconds.
    After(u32),
}

/// How a failure looks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) http: StatusCode,
    /// OpenAI's `error.type`.
    pub(crate) kind: &'static str,
    /// OpenAI's `error.code`.
    pub(crate) code: &'static str,
    pub(crate) retry: Retry,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// The caller went away; nobody reads this status, but logs and metrics do.
const CLIENT_CLOSED_REQUEST: u16 = 499;

const fn never(http: StatusCode, kind: &'static str, code: &'static str) -> Status {
    Status {
        http,
        kind,
        code,
        retry: Retry::Never,
    }
}

const fn later(code: &'static str, seconds: u32) -> Status {
    Status {
        http: StatusCode::SERVICE_UNAVAILABLE,
        kind: SERVER,
        code,
        retry: Retry::After(seconds),
    }
}

/// The status of a request that failed further down. Contained faults may pass; a request that
/// was proven guilty fails the same way again.
#[deny(clippy::wildcard_enum_match_arm)]
pub(crate) fn status_of(failure: &RequestFailure) -> Status {
    let contained = |code| {
        if failure.guilty {
            never(StatusCode::INTERNAL_SERVER_ERROR, SERVER, code)
        } else {
            later(code, RETRY_AFTER_S_MIN)
        }
    };
    match &failure.fault {
        Fault::InvalidRequest { .. } => never(StatusCode::BAD_REQUEST, INVALID, "invalid_value"),
        Fault::ContextFull { .. } => {
            never(StatusCode::BAD_REQUEST, INVALID, "context_length_exceeded")
        }
        Fault::Overloaded {
            resource,
            retry_after_s,
        } => later(overload_code(*resource), *retry_after_s),
        Fault::Cancelled => {
            let http = StatusCode::from_u16(CLIENT_CLOSED_REQUEST);
            never(http.unwrap_or(StatusCode::BAD_REQUEST), SERVER, "cancelled")
        }
        Fault::DeadlineExceeded { .. } => {
            never(StatusCode::GATEWAY_TIMEOUT, SERVER, "deadline_exceeded")
        }
        Fault::ModelInvalid { .. } => {
            never(StatusCode::SERVICE_UNAVAILABLE, SERVER, "model_invalid")
        }
        Fault::EngineUnavailable => later("engine_unavailable", 2),
        // Bystanders of a death are resumed, so these two reach suspects only.
        Fault::EngineCrashed => never(StatusCode::INTERNAL_SERVER_ERROR, SERVER, "worker_crashed"),
        Fault::EngineStalled => never(StatusCode::INTERNAL_SERVER_ERROR, SERVER, "worker_stalled"),
        Fault::Quarantined => never(
            StatusCode::UNPROCESSABLE_ENTITY,
            INVALID,
            "request_quarantined",
        ),
        Fault::NonFiniteLogits => contained("non_finite_logits"),
        Fault::OutOfMemory => contained("insufficient_memory"),
        Fault::Internal { .. } => contained("internal_error"),
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
fn overload_code(resource: Overload) -> &'static str {
    match resource {
        Overload::QueueFull | Overload::QueueTooOld => "overloaded",
        Overload::ReaderTooSlow => "reader_too_slow",
        Overload::Draining => "draining",
    }
}

/// The status of a request that the front refused.
#[deny(clippy::wildcard_enum_match_arm)]
pub(crate) fn status_of_refusal(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Invalid { .. } => never(StatusCode::BAD_REQUEST, INVALID, "invalid_value"),
        Refusal::Unsupported { .. } => never(StatusCode::BAD_REQUEST, INVALID, "unsupported_value"),
        Refusal::BodyTooLarge { .. } => {
            never(StatusCode::PAYLOAD_TOO_LARGE, INVALID, "request_too_large")
        }
        Refusal::BodyTooSlow { .. } => {
            never(StatusCode::REQUEST_TIMEOUT, INVALID, "request_timeout")
        }
        Refusal::BodyBroken => never(StatusCode::BAD_REQUEST, INVALID, "body_incomplete"),
        Refusal::BodiesTooMany => later("overloaded", RETRY_AFTER_S_MIN),
        Refusal::ModelLoading => later("model_loading", 2),
        Refusal::KeyMissing | Refusal::KeyWrong => {
            never(StatusCode::UNAUTHORIZED, INVALID, "invalid_api_key")
        }
        Refusal::ModelUnknown { .. } => never(StatusCode::NOT_FOUND, INVALID, "model_not_found"),
        Refusal::EndpointUnknown { .. } => never(StatusCode::NOT_FOUND, INVALID, "not_found"),
        Refusal::MethodNotAllowed { .. } => never(
            StatusCode::METHOD_NOT_ALLOWED,
            INVALID,
            "method_not_allowed",
        ),
        Refusal::HandlerPanicked => {
            never(StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error")
        }
    }
}

impl Failure {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Refused(refusal) => status_of_refusal(refusal),
            Self::Failed { failure, .. } => status_of(failure),
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.param(),
            Self::Failed {
                failure,
                prompt_param,
            } => match &failure.fault {
                Fault::InvalidRequest { param, .. } => param.as_deref(),
                Fault::ContextFull { .. } => *prompt_param,
                _ => None,
            },
        }
    }

    /// `{"error":{...}}` as it stands in a body or in the last event of a stream. `partial`
    /// is what had been generated until then.
    pub(crate) fn to_json(&self, request_id: &str, partial: Option<Value>) -> Value {
        let status = self.status();
        let mut error = Map::new();
        error.insert("message".to_owned(), self.to_string().into());
        error.insert("type".to_owned(), status.kind.into());
        error.insert("param".to_owned(), self.param().into());
        error.insert("code".to_owned(), status.code.into());
        error.insert("request_id".to_owned(), request_id.into());
        let retryable = status.retry != Retry::Never;
        error.insert("retryable".to_owned(), retryable.into());
        if let Self::Failed { failure, .. } = self {
            if let Some(fault_id) = failure.fault_id {
                error.insert("fault_id".to_owned(), fault_id.to_string().into());
            }
            if let Fault::ContextFull {
                prompt_tokens,
                context_tokens,
            } = failure.fault
            {
                error.insert("n_prompt_tokens".to_owned(), prompt_tokens.into());
                error.insert("n_ctx".to_owned(), context_tokens.into());
            }
        }
        if let Some(partial) = partial {
            error.insert("partial".to_owned(), partial);
        }
        json!({ "error": error })
    }

    /// The whole answer of a request whose headers are not sent yet.
    pub(crate) fn to_response(&self, request_id: &str, partial: Option<Value>) -> Response<Body> {
        let status = self.status();
        let mut body = self.to_json(request_id, partial);
        if let Value::Object(body) = &mut body {
            // FastAPI's key, which TabbyAPI's clients read.
            body.insert("detail".to_owned(), self.to_string().into());
        }
        let mut response = json_response(status.http, &body);
        let headers = response.headers_mut();
        match status.retry {
            Retry::Never => {
                headers.insert("x-should-retry", HeaderValue::from_static("false"));
            }
            Retry::After(seconds) => {
                let seconds = seconds.clamp(RETRY_AFTER_S_MIN, RETRY_AFTER_S_MAX);
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                headers.insert("x-should-retry", HeaderValue::from_static("true"));
            }
        }
        if status.http == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A JSON answer.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests;
