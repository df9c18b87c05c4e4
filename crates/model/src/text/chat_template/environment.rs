//! The Jinja environment of `transformers`: its white space rules, filters and functions.

use std::borrow::Cow;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};

use super::calendar::format_time;
use super::error::TemplateError;
use super::json::{JsonStyle, to_json};

/// Name of the only template in the environment.
pub(super) const TEMPLATE: &str = "chat_template";
/// Context variable that holds the injected time.
pub(super) const NOW: &str = "__now_unix_seconds";
/// Bytes of JSON that cost as much as one instruction.
const BYTES_PER_FUEL: u64 = 64;

/// An error that the template itself raised.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

pub(super) fn build_environment(
    source: &str,
    fuel: u64,
) -> Result<Environment<'static>, TemplateError> {
    let failed = |error: Error| TemplateError::from_jinja(&error);
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.map_err(failed)?);
    environment.set_fuel(Some(fuel));
    environment.set_auto_escape_callback(|_name| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_test("iterable", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment
        .add_template_owned(TEMPLATE, plain_blocks(source).into_owned())
        .map_err(failed)?;
    Ok(environment)
}

/// Templates ask this of `tools` and `content` before they count them; to Python none is not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn raise_exception(message: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> Result<String, Error> {
    let now = state.lookup(NOW).and_then(|now| now.as_i64());
    format_time(now.unwrap_or_default(), format).ok_or_else(|| {
        let message = format!("strftime_now cannot show {format:?}");
        Error::new(ErrorKind::InvalidOperation, message)
    })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "filters take their keyword arguments by value"
)]
/// `json.dumps` as templates call it, where characters beyond ASCII stand for themselves.
fn tojson(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let style = JsonStyle {
        ensure_ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        indent: options.get::<Option<usize>>("indent")?,
        separators: options
            .get::<Option<Value>>("separators")?
            .map(|pair| separators(&pair))
            .transpose()?,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let text = to_json(value, &style)?;
    state.consume_fuel(text.len() as u64 / BYTES_PER_FUEL)?;
    Ok(Value::from(text))
}

fn separators(pair: &Value) -> Result<(String, String), Error> {
    let texts: Vec<Value> = pair.try_iter()?.collect();
    match texts.as_slice() {
        [item, name] => Ok((item.to_string(), name.to_string())),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            "separators must be a pair",
        )),
    }
}

/// Replaces the block that marks the assistant's words for training, which changes nothing
/// in the text, by a plain one.
fn plain_blocks(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut result = String::with_capacity(source.len());
    let mut parts = source.split("{%");
    result.push_str(parts.next().unwrap_or_default());
    for part in parts {
        result.push_str("{%");
        let (tag, rest) = part.split_at(part.find("%}").unwrap_or_default());
        match tag.trim_matches(['-', '+']).trim() {
            "generation" => result.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => result.push_str(&tag.replace("endgeneration", "endif")),
            _ => result.push_str(tag),
        }
        result.push_str(rest);
    }
    Cow::Owned(result)
}
