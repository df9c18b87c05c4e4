//! Chat messages: from whatever clients send to the one shape that chat templates read.
//! Keys that we do not know are passed on, because only the template knows which matter.

use relight_protocol::limits::{MESSAGES_MAX, PROMPT_BYTES_MAX};

use crate::field::{Field, Kind, Object};
use crate::refusal::Refusal;

/// Parts of one message's content.
const PARTS_MAX: usize = 4096;
/// Part types that carry plain text under the key `text`.
const TEXT_PARTS: [&str; 3] = ["text", "input_text", "output_text"];

/// The messages as a JSON array. Roles are known, contents are strings (or `null` beside
/// tool calls), everything else is as the client wrote it, checked to be readable JSON.
pub(crate) fn messages_json(field: &Field<'_>) -> Result<String, Refusal> {
    let messages = field.list(MESSAGES_MAX)?;
    if messages.len() == 0 {
        return Err(field.refused("must not be empty"));
    }
    let mut json = String::from("[");
    for (index, message) in messages.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        write_message(&message, &mut json)?;
    }
    json.push(']');
    if json.len() > PROMPT_BYTES_MAX {
        let found = json.len();
        let message = format!("has {found} bytes, the limit is {PROMPT_BYTES_MAX}");
        return Err(field.refused(&message));
    }
    Ok(json)
}

fn write_message(field: &Field<'_>, json: &mut String) -> Result<(), Refusal> {
    let message = field.object()?;
    let role = role(&message)?;
    json.push_str("{\"role\":");
    push_string(json, role);
    json.push_str(",\"content\":");
    match content(&message, role)? {
        Some(text) => push_string(json, &text),
        None => json.push_str("null"),
    }
    for (key, value) in message.iter() {
        if matches!(key, "role" | "content") {
            continue;
        }
        value.check()?;
        json.push(',');
        push_string(json, key);
        json.push(':');
        json.push_str(value.json());
    }
    json.push('}');
    Ok(())
}

fn role(message: &Object<'_>) -> Result<&'static str, Refusal> {
    let field = message.required("role")?;
    match field.text()?.as_str() {
        // OpenAI's newer name for the same thing; no template of an open model knows it.
        "system" | "developer" => Ok("system"),
        "user" => Ok("user"),
        "assistant" => Ok("assistant"),
        "tool" => Ok("tool"),
        "function" => Ok("function"),
        _ => {
            Err(field.invalid("must be one of system, developer, user, assistant, tool, function"))
        }
    }
}

/// The text of a message, or `None` where the assistant only called tools.
fn content(message: &Object<'_>, role: &str) -> Result<Option<String>, Refusal> {
    let Some(field) = message.field("content") else {
        let called = ["tool_calls", "function_call"]
            .iter()
            .any(|key| message.field(key).is_some());
        return if role == "assistant" && called {
            Ok(None)
        } else {
            message.required("content").map(|_absent| None)
        };
    };
    match field.kind() {
        Kind::Text => field.text().map(Some),
        Kind::List => text_of_parts(&field).map(Some),
        Kind::Null | Kind::Boolean | Kind::Number | Kind::Object => {
            Err(field.wrong_kind("a string or a list of parts"))
        }
    }
}

/// Joins text parts with line ends between them.
fn text_of_parts(field: &Field<'_>) -> Result<String, Refusal> {
    let mut text = String::new();
    for (index, part) in field.list(PARTS_MAX)?.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        if part.kind() == Kind::Text {
            text.push_str(&part.text()?);
            continue;
        }
        let part = part.object()?;
        let kind = part.required("type")?;
        if !TEXT_PARTS.contains(&kind.text()?.as_str()) {
            let (path, value) = (kind.path(), kind.quote());
            let message = format!("'{path}' is {value}, but this model reads text only");
            return Err(Refusal::unsupported(path, message));
        }
        text.push_str(&part.required("text")?.text()?);
    }
    Ok(text)
}

/// Appends `text` as a JSON string.
pub(crate) fn push_string(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests;
