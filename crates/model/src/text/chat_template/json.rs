//! JSON into template values, and template values into the JSON that Python writes.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

pub(super) fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::from(value),
            (None, Some(value)) => Value::from(value),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => list_to_value(items),
        Json::Object(members) => Value::from_pairs(
            members
                .iter()
                .map(|(name, member)| (name.as_str(), to_value(member))),
        ),
    }
}

pub(super) fn list_to_value(items: &[Json]) -> Value {
    Value::from(items.iter().map(to_value).collect::<Vec<_>>())
}

pub(super) fn optional_to_value(json: Option<&Json>) -> Value {
    json.map_or_else(|| Value::from(()), to_value)
}

/// Options of Python's `json.dumps`.
#[derive(Debug, Default)]
pub(super) struct JsonStyle {
    pub(super) ensure_ascii: bool,
    pub(super) indent: Option<usize>,
    /// Between items, and between a name and its value.
    pub(super) separators: Option<(String, String)>,
    pub(super) sort_keys: bool,
}

/// Nesting at which a value is refused; request JSON is at most 128 deep.
const DEPTH_MAX: usize = 256;

pub(super) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let (item, name) = match &style.separators {
        Some((item, name)) => (item.as_str(), name.as_str()),
        None if style.indent.is_some() => (",", ": "),
        None => (", ", ": "),
    };
    let mut writer = JsonWriter {
        text: String::new(),
        style,
        item,
        name,
    };
    writer.value(value, 0)?;
    Ok(writer.text)
}

struct JsonWriter<'a> {
    text: String,
    style: &'a JsonStyle,
    item: &'a str,
    name: &'a str,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(not_json("value is nested too deep"));
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self
                .text
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => return Err(not_json(&format!("{kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.text.push_str(&value.to_string());
        } else {
            let number = f64::try_from(value.clone())?;
            self.text.push_str(&python_float(number));
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.between(empty, depth + 1);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.close(empty, depth);
        self.text.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.text.push('{');
        let empty = keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            self.between(index == 0, depth + 1);
            match key.as_str() {
                Some(name) => self.string(name),
                None => {
                    self.text.push('"');
                    self.value(key, DEPTH_MAX)?;
                    self.text.push('"');
                }
            }
            self.text.push_str(self.name);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(empty, depth);
        self.text.push('}');
        Ok(())
    }

    fn between(&mut self, first: bool, depth: usize) {
        if !first {
            self.text.push_str(self.item);
        }
        self.line(depth);
    }

    fn close(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.line(depth);
        }
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\0'..='\u{1f}' => self.escape(character),
                '\u{7f}'.. if self.style.ensure_ascii && !character.is_ascii() => {
                    self.escape(character);
                }
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }

    fn escape(&mut self, character: char) {
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            self.text.push_str(&format!("\\u{unit:04x}"));
        }
    }
}

/// The shortest digits that read back as `number`, laid out as Python's `repr` does.
fn python_float(number: f64) -> String {
    if !number.is_finite() {
        let word = if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        return word.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        format!("{number:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

fn not_json(message: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, message.to_owned())
}

#[cfg(test)]
mod tests;
