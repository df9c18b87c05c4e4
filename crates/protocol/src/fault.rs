//! What failed, and how far it reached; never what to do about it. Policy lives in two
//! exhaustive matches: the server's status table and the supervisor's action table.

use serde::{Deserialize, Serialize};

/// Where in a request's private work a fault arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    Prepare,
    Admit,
    Sample,
    Detokenize,
    Emit,
}

/// Which resource was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Overload {
    QueueFull,
    QueueTooOld,
    ReaderTooSlow,
    Draining,
}

/// Why a request failed. The text of `message` fields is meant for the client and contains
/// nothing but what the client itself sent, plus our limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// The request cannot be served as written. `param` names the field in the caller's dialect.
    #[error("{message}")]
    InvalidRequest {
        param: Option<String>,
        message: String,
    },
    /// The prompt alone does not fit the context.
    #[error(
        "this model's maximum context length is {context_tokens} tokens, but the prompt has {prompt_tokens} tokens"
    )]
    ContextFull {
        prompt_tokens: u32,
        context_tokens: u32,
    },
    /// A bound on queued or buffered work was reached.
    #[error("the server is overloaded, try again in {retry_after_s} s")]
    Overloaded {
        resource: Overload,
        retry_after_s: u32,
    },
    /// The caller went away or asked to stop.
    #[error("the request was cancelled")]
    Cancelled,
    /// The request's own time limit passed.
    #[error("the request exceeded its time limit of {limit_ms} ms")]
    DeadlineExceeded { limit_ms: u64 },
    /// The model file cannot be served.
    #[error("the model cannot be loaded: {message}")]
    ModelInvalid { message: String },
    /// No engine is up, and none will be within the request's patience.
    #[error("no engine is available")]
    EngineUnavailable,
    /// The engine died while it worked on this request, and replay is not possible.
    #[error("the engine died while it worked on this request")]
    EngineCrashed,
    /// The engine stopped making progress on this request.
    #[error("the engine stopped making progress on this request")]
    EngineStalled,
    /// This request has killed engines before and is refused for a while.
    #[error("this request has stopped the engine repeatedly and is refused for a while")]
    Quarantined,
    /// The model produced logits that are not finite for this request.
    #[error("the model produced non-finite numbers for this request")]
    NonFiniteLogits,
    /// Memory for this request's state could not be had.
    #[error("the engine ran out of memory for this request")]
    OutOfMemory,
    /// A bug of ours in a phase private to this request; contained there.
    #[error("an internal error in the {phase:?} phase of this request")]
    Internal { phase: Phase },
}

impl Fault {
    /// Shorthand for the commonest fault of all.
    #[must_use]
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::InvalidRequest {
            param: Some(param.to_owned()),
            message: message.into(),
        }
    }
}
