//! Why the front itself turns a request away, before any engine hears of it.

/// A request that ends in the front. The texts are meant for the client; what they quote is
/// nothing but what the client sent, plus our limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// `param` is the path of the field, e.g. `messages[3].content`; `None` is the body itself.
    #[error("{message}")]
    Invalid {
        param: Option<String>,
        message: String,
    },
    /// Well formed, known, and beyond what this server can honour.
    #[error("{message}")]
    Unsupported { param: String, message: String },
    #[error("the body has more than {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: usize },
    #[error("the body did not arrive within {limit_ms} ms")]
    BodyTooSlow { limit_ms: u64 },
    #[error("the body ended before it was complete")]
    BodyBroken,
    #[error("too many large bodies are being read, try again in a moment")]
    BodiesTooMany,
    #[error("an API key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`")]
    KeyMissing,
    #[error("the API key is not valid")]
    KeyWrong,
    #[error("the model '{name}' does not exist; this server serves '{served}'")]
    ModelUnknown { name: String, served: String },
    #[error("the model is still being loaded")]
    ModelLoading,
    #[error("no such endpoint: {path}")]
    EndpointUnknown { path: String },
    #[error("{path} does not answer {method}")]
    MethodNotAllowed { method: String, path: String },
    /// A bug of ours in a handler; the process goes on.
    #[error("an internal error while the request was handled")]
    HandlerPanicked,
}

impl Refusal {
    /// The field at `param` is not acceptable.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::Invalid {
            param: Some(param.to_owned()),
            message: message.into(),
        }
    }

    /// The field at `param` asks for something that is not there.
    pub(crate) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self::Unsupported {
            param: param.to_owned(),
            message: message.into(),
        }
    }

    /// The path of the field, if one is at fault.
    pub(crate) fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid { param, .. } => param.as_deref(),
            Self::Unsupported { param, .. } => Some(param),
            Self::ModelUnknown { .. } => Some("model"),
            Self::BodyTooLarge { .. }
            | Self::BodyTooSlow { .. }
            | Self::BodyBroken
            | Self::BodiesTooMany
            | Self::ModelLoading
            | Self::KeyMissing
            | Self::KeyWrong
            | Self::EndpointUnknown { .. }
            | Self::MethodNotAllowed { .. }
            | Self::HandlerPanicked => None,
        }
    }
}
