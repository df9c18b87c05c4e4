//! OpenAI's dialect: Chat Completions and Completions, with the fields that local servers
//! and their clients have added. See `docs/api.md` for what is honoured, ignored, refused.

mod answer;
mod chat;
mod chat_writer;
mod completion;
mod completion_writer;
pub(crate) mod endpoint;
mod logprob;
mod message;
mod sampling;
mod unsupported;

use relight_protocol::Request;

use crate::field::Object;
use crate::refusal::Refusal;

/// One HTTP request of the dialect: the canonical requests it needs, and the answer's form.
#[derive(Debug)]
pub(crate) struct Call {
    /// One per prompt. Choice `c` of request `r` is number `r * n + c` of the answer.
    pub(crate) requests: Vec<Request>,
    pub(crate) reply: Reply,
}

/// How the answer is to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) stream: bool,
    /// End a stream with a chunk that holds nothing but the usage.
    pub(crate) include_usage: bool,
    /// The name by which the client called the model.
    pub(crate) model: Option<String>,
}

impl Reply {
    fn from_body(body: &Object<'_>) -> Result<Self, Refusal> {
        let include_usage = match body.field("stream_options") {
            Some(options) => sampling::boolean(&options.object()?, &["include_usage"])?,
            None => None,
        };
        Ok(Self {
            stream: sampling::boolean(body, &["stream"])?.unwrap_or(false),
            include_usage: include_usage.unwrap_or(false),
            model: body.field("model").map(|field| field.text()).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests;
