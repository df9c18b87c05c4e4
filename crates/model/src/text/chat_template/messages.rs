//! Messages in the shape that a template reads.
//!
//! Clients send content as text, as a list of parts, as null or not at all; arguments of
//! tool calls as JSON text. Templates were each written for one of these. Which one is found
//! out by rendering small chats once, when the template is compiled.

use serde_json::{Value as Json, json};

use super::error::TemplateError;

const NEEDLE: &str = "needle7531";

/// What a template wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// It knows content as a list of parts.
    takes_parts: bool,
    /// It knows content as text.
    takes_text: bool,
    /// It compares content with none.
    takes_null: bool,
    /// It wants the arguments of tool calls as JSON text.
    arguments_as_text: bool,
    /// It knows the role `developer`.
    has_developer: bool,
}

impl Shape {
    /// What can be read off the source.
    pub(super) fn of_source(source: &str) -> Self {
        let takes_null = ["content", "content']", "content\"]"]
            .iter()
            .any(|content| {
                [
                    " is none",
                    " is not none",
                    " == none",
                    " != none",
                    " is None",
                    " is not None",
                ]
                .iter()
                .any(|test| source.contains(&format!("{content}{test}")))
            });
        Self {
            takes_parts: false,
            takes_text: true,
            takes_null,
            arguments_as_text: false,
            has_developer: source.contains("developer"),
        }
    }

    /// Finds out the rest. `render` gives `None` where the template refuses.
    pub(super) fn probe(&mut self, render: impl Fn(Vec<Json>) -> Option<String>) {
        let shows_needle = |content: Json| {
            let text = render(vec![json!({ "role": "user", "content": content })]);
            // A list that was written out as it is shows its keys.
            text.is_some_and(|text| text.contains(NEEDLE) && !text.contains("type"))
        };
        let parts_shown = shows_needle(json!([{ "type": "text", "text": NEEDLE }]));
        let text_shown = shows_needle(json!(NEEDLE));
        self.takes_parts = parts_shown;
        self.takes_text = text_shown || !parts_shown;

        let call_shown = |arguments: Json| {
            let text = render(vec![
                json!({ "role": "user", "content": "x" }),
                json!({ "role": "assistant", "content": "", "tool_calls": [{
                    "id": "call00001",
                    "type": "function",
                    "function": { "name": "f", "arguments": arguments },
                }]}),
            ]);
            text.is_some_and(|text| text.contains(NEEDLE))
        };
        self.arguments_as_text = !call_shown(json!({ "key": NEEDLE }))
            && call_shown(json!(json!({ "key": NEEDLE }).to_string()));
    }
}

/// Copies of the messages in the template's shape.
pub(super) fn normalise(messages: &[Json], shape: &Shape) -> Result<Vec<Json>, TemplateError> {
    let normalised = messages.iter().enumerate().map(|(index, message)| {
        let mut message = message.clone();
        let Some(members) = message.as_object_mut() else {
            return Err(TemplateError::MessageNotObject { message: index });
        };
        let content = members.remove("content").unwrap_or(Json::Null);
        // Clients write out what a message does not have; templates ask whether it is there.
        members
            .retain(|_, member| !member.is_null() && !member.as_array().is_some_and(Vec::is_empty));
        members.insert("content".to_owned(), content_for(content, index, shape)?);
        if !shape.has_developer && members.get("role") == Some(&json!("developer")) {
            members.insert("role".to_owned(), json!("system"));
        }
        if !shape.arguments_as_text {
            parse_arguments(members.get_mut("tool_calls"));
        }
        Ok(message)
    });
    normalised.collect()
}

fn content_for(content: Json, message: usize, shape: &Shape) -> Result<Json, TemplateError> {
    match content {
        Json::Null if shape.takes_null => Ok(Json::Null),
        Json::Null => Ok(json!("")),
        Json::String(text) if shape.takes_text => Ok(Json::String(text)),
        Json::String(text) => Ok(json!([{ "type": "text", "text": text }])),
        Json::Array(parts) => {
            let mut texts = Vec::with_capacity(parts.len());
            for (part, item) in parts.iter().enumerate() {
                let text = text_of(item).ok_or(TemplateError::PartNotText { message, part })?;
                texts.push(text);
            }
            if shape.takes_parts {
                Ok(texts
                    .iter()
                    .map(|text| json!({ "type": "text", "text": text }))
                    .collect())
            } else {
                Ok(Json::String(texts.join("\n")))
            }
        }
        _ => Err(TemplateError::ContentNotText { message }),
    }
}

/// The text of a part, which some clients send bare.
fn text_of(part: &Json) -> Option<&str> {
    let member = match part.get("type").map(|kind| kind.as_str()) {
        None | Some(Some("text" | "input_text" | "output_text")) => "text",
        Some(Some("refusal")) => "refusal",
        Some(_) => return None,
    };
    part.as_str().or_else(|| part.get(member)?.as_str())
}

/// Arguments that are JSON text become what they say; other text stays as it is.
fn parse_arguments(calls: Option<&mut Json>) {
    let calls = calls.and_then(Json::as_array_mut).into_iter().flatten();
    for call in calls {
        let function = call.get_mut("function");
        let Some(arguments) = function.and_then(|function| function.get_mut("arguments")) else {
            continue;
        };
        let parsed: Option<Json> = arguments
            .as_str()
            .map(|text| if text.trim().is_empty() { "{}" } else { text })
            .and_then(|text| serde_json::from_str(text).ok());
        if let Some(parsed) = parsed.filter(Json::is_object) {
            *arguments = parsed;
        }
    }
}

/// Appends to the text of a message's content; `false` if it has none.
pub(super) fn append_to_content(message: &mut Json, suffix: &str) -> bool {
    let text = match message.get_mut("content") {
        Some(Json::String(text)) => Some(text),
        Some(Json::Array(parts)) => match parts.last_mut().and_then(|part| part.get_mut("text")) {
            Some(Json::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    text.map(|text| text.push_str(suffix)).is_some()
}
