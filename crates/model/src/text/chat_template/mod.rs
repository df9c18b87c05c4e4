//! Chats to prompt text, by the Jinja template that a model file carries.
//!
//! Templates are written for Python's Jinja as `transformers` sets it up, and come from
//! model files: they run with a budget of instructions and a limit on their output.

mod calendar;
mod environment;
mod error;
mod json;
mod messages;

use std::io;

use minijinja::Value;
use relight_gguf::{Metadata, Optional};
use serde_json::{Map, Value as Json};

use super::TextError;
use super::tokenizer::Tokenizer;
use environment::{TEMPLATE, build_environment};
pub use error::TemplateError;
use messages::{Shape, normalise};

/// Bounds on one rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Instructions, roughly.
    pub fuel: u64,
    pub output_bytes: usize,
}

/// Texts of special tokens that templates name; empty if the model has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTexts {
    pub bos: String,
    pub eos: String,
    pub unknown: String,
    pub padding: String,
}

impl SpecialTexts {
    /// The texts of the tokens that a model file names.
    ///
    /// # Errors
    /// If the file names a token that is not in the vocabulary.
    pub fn from_gguf(metadata: &Metadata<'_>, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let text = |token: Option<u32>| {
            let bytes = token.and_then(|token| tokenizer.token_bytes(token));
            String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
        };
        let named = |key| super::tokenizer::token_id(metadata, key, tokenizer.vocabulary_size());
        Ok(Self {
            bos: text(tokenizer.bos()),
            eos: text(tokenizer.eos()),
            unknown: text(named("tokenizer.ggml.unknown_token_id")?),
            padding: text(named("tokenizer.ggml.padding_token_id")?),
        })
    }
}

/// One chat. The JSON is what a client sent: it need not have any particular shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatInput {
    /// Message objects, in OpenAI's shape.
    pub messages: Vec<Json>,
    /// Tool definitions.
    pub tools: Option<Json>,
    /// Extra template variables; they cannot replace the ones that every template has.
    pub variables: Map<String, Json>,
    /// Open the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open, for the model to go on with.
    pub continue_final_message: bool,
    /// The time that `strftime_now` shows, in seconds since 1970 UTC.
    pub now_unix_seconds: i64,
}

impl ChatInput {
    /// Reads the JSON texts of a request.
    ///
    /// # Errors
    /// `NotJson` names the field and the place in it.
    pub fn from_json(
        messages: &str,
        tools: Option<&str>,
        variables: Option<&str>,
    ) -> Result<Self, TemplateError> {
        Ok(Self {
            messages: parse("messages", messages)?,
            tools: tools.map(|tools| parse("tools", tools)).transpose()?,
            variables: match variables {
                Some(variables) => parse("chat_template_kwargs", variables)?,
                None => Map::new(),
            },
            add_generation_prompt: true,
            continue_final_message: false,
            now_unix_seconds: 0,
        })
    }
}

fn parse<T: serde::de::DeserializeOwned>(
    field: &'static str,
    text: &str,
) -> Result<T, TemplateError> {
    serde_json::from_str(text).map_err(|error| TemplateError::NotJson {
        field,
        line: error.line(),
        column: error.column(),
    })
}

/// What stands after the last message while the place to cut at is sought. Private use
/// characters: no template strips or writes them.
const CUT_MARK: &str = "\u{f8f0}\u{f8f1}\u{f8f0}";

/// A compiled template, and what it wants messages to look like.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: minijinja::Environment<'static>,
    special: SpecialTexts,
    limits: TemplateLimits,
    shape: Shape,
}

impl ChatTemplate {
    /// The template of a model file, unless `replacement` stands in for it.
    ///
    /// # Errors
    /// `Missing` if there is neither, and the errors of compiling.
    pub fn from_gguf(
        metadata: &Metadata<'_>,
        replacement: Option<&str>,
        special: SpecialTexts,
        limits: TemplateLimits,
    ) -> Result<Self, TemplateError> {
        let stored = metadata.str("tokenizer.chat_template").optional();
        let stored = stored.map_err(|_wrong_type| TemplateError::Missing)?;
        let source = replacement.or(stored).ok_or(TemplateError::Missing)?;
        Self::new(source, special, limits)
    }

    /// # Errors
    /// `Invalid` with the line that is not Jinja.
    pub fn new(
        source: &str,
        special: SpecialTexts,
        limits: TemplateLimits,
    ) -> Result<Self, TemplateError> {
        let mut template = Self {
            environment: build_environment(source, limits.fuel)?,
            special,
            limits,
            shape: Shape::of_source(source),
        };
        let mut shape = template.shape;
        shape.probe(|messages| {
            let input = ChatInput {
                messages,
                tools: None,
                variables: Map::new(),
                add_generation_prompt: false,
                continue_final_message: false,
                now_unix_seconds: 0,
            };
            template.render_as_is(&input, &input.messages).ok()
        });
        template.shape = shape;
        Ok(template)
    }

    /// The prompt text. Special tokens are in it by name, BOS too where the template writes
    /// it: encode it with `parse_special` and without `add_special`.
    ///
    /// # Errors
    /// Whatever is wrong with the chat, with the line of the template that says so.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let mut messages = normalise(&input.messages, &self.shape)?;
        if !input.continue_final_message {
            return self.render_as_is(input, &messages);
        }
        if input.add_generation_prompt {
            return Err(TemplateError::TwoContinuations);
        }
        let last = messages
            .last_mut()
            .ok_or(TemplateError::NothingToContinue)?;
        if !messages::append_to_content(last, CUT_MARK) {
            return Err(TemplateError::NothingToContinue);
        }
        let mut text = self.render_as_is(input, &messages)?;
        let cut = text
            .rfind(CUT_MARK)
            .ok_or(TemplateError::NothingToContinue)?;
        text.truncate(cut);
        // A template that writes a message twice has written the mark twice.
        Ok(text.replace(CUT_MARK, ""))
    }

    fn render_as_is(&self, input: &ChatInput, messages: &[Json]) -> Result<String, TemplateError> {
        let fixed = [
            ("messages", json::list_to_value(messages)),
            ("tools", json::optional_to_value(input.tools.as_ref())),
            (
                "add_generation_prompt",
                Value::from(input.add_generation_prompt),
            ),
            ("bos_token", Value::from(self.special.bos.as_str())),
            ("eos_token", Value::from(self.special.eos.as_str())),
            ("unk_token", Value::from(self.special.unknown.as_str())),
            ("pad_token", Value::from(self.special.padding.as_str())),
            (environment::NOW, Value::from(input.now_unix_seconds)),
        ];
        let variables = input
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), json::to_value(value)));
        // A later pair replaces an earlier one of the same name.
        let absent = [("documents", Value::from(()))].into_iter();
        let context = Value::from_pairs(absent.chain(variables).chain(fixed));
        let template = self
            .environment
            .get_template(TEMPLATE)
            .map_err(|error| TemplateError::from_jinja(&error))?;
        let mut output = Bounded {
            bytes: Vec::new(),
            limit: self.limits.output_bytes,
            full: false,
        };
        let rendered = template.render_captured_to(context, &mut output).map(drop);
        if output.full {
            return Err(TemplateError::OutputTooLong {
                limit: self.limits.output_bytes,
            });
        }
        rendered.map_err(|error| TemplateError::from_jinja(&error))?;
        Ok(String::from_utf8_lossy(&output.bytes).into_owned())
    }
}

/// Output that refuses to grow beyond a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl io::Write for &mut Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.limit {
            self.full = true;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
