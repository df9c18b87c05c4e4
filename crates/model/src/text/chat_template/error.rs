//! What can go wrong between a chat and its prompt; fit to be shown to the client.

use minijinja::ErrorKind;

use super::environment::Raised;

/// A template or a chat that does not fit it. Lines count from 1 in the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("this model has no chat template; send a plain completion or configure a template")]
    Missing,
    #[error("the chat template is not valid, line {line}: {message}")]
    Invalid { line: usize, message: String },
    #[error("the chat template refused the messages, line {line}: {message}")]
    Raised { line: usize, message: String },
    #[error("the chat template failed, line {line}: {message}")]
    Failed { line: usize, message: String },
    #[error("the chat template ran for too long, line {line}")]
    OutOfFuel { line: usize },
    #[error("the chat template wrote more than {limit} bytes")]
    OutputTooLong { limit: usize },
    #[error("`{field}` is not the JSON it must be, line {line}, column {column}")]
    NotJson {
        field: &'static str,
        line: usize,
        column: usize,
    },
    #[error("`messages[{message}]` is not an object")]
    MessageNotObject { message: usize },
    #[error("`messages[{message}].content` must be a string, null or a list of parts")]
    ContentNotText { message: usize },
    #[error("`messages[{message}].content[{part}]` is not text, and this model takes only text")]
    PartNotText { message: usize, part: usize },
    #[error("`add_generation_prompt` and `continue_final_message` exclude each other")]
    TwoContinuations,
    #[error("there is no final message with text to continue")]
    NothingToContinue,
}

impl TemplateError {
    pub(super) fn from_jinja(error: &minijinja::Error) -> Self {
        let line = error.line().unwrap_or_default();
        if let Some(message) = raised(error) {
            return Self::Raised { line, message };
        }
        let message = || match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        match error.kind() {
            ErrorKind::OutOfFuel => Self::OutOfFuel { line },
            ErrorKind::SyntaxError | ErrorKind::BadEscape | ErrorKind::InvalidDelimiter => {
                Self::Invalid {
                    line,
                    message: message(),
                }
            }
            _ => Self::Failed {
                line,
                message: message(),
            },
        }
    }
}

/// What the template said with `raise_exception`, somewhere below `error`.
fn raised(error: &minijinja::Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return Some(message.clone());
        }
        cause = inner.source();
    }
    None
}
