//! `relight inspect`: everything that a GGUF file says about itself.

use relight_gguf::{Array, Header, TensorInfo, Value};
use serde_json::{Map, json};

use crate::args::InspectArgs;
use crate::output::Output;
use crate::store::with_header;

/// Elements of an array that are printed; vocabularies have hundreds of thousands.
const ELEMENTS_SHOWN_MAX: usize = 8;
/// Characters of a text that are printed as text; chat templates have thousands.
const CHARACTERS_SHOWN_MAX: usize = 160;

/// # Errors
/// If the file cannot be read or is not a valid GGUF file.
pub(crate) fn inspect(args: &InspectArgs, output: Output) -> anyhow::Result<()> {
    with_header(&args.file, |header| {
        if output.json {
            return output.value(&to_json(header));
        }
        output.line(&format!(
            "GGUF version {}, alignment {}, {} metadata entries, {} tensors",
            header.version(),
            header.alignment(),
            header.metadata().len(),
            header.tensors().len()
        ))?;
        for (key, value) in header.metadata().iter() {
            output.line(&format!("{key} ({}) = {}", value.kind(), shown(&value)))?;
        }
        for tensor in header.tensors() {
            output.line(&shown_tensor(tensor))?;
        }
        Ok(())
    })?
    .map_err(Into::into)
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => {
            let mut shown: String = text.chars().take(CHARACTERS_SHOWN_MAX).collect();
            if shown.len() < text.len() {
                shown.push('…');
            }
            format!("{shown:?}")
        }
        Value::Array(array) => {
            let elements = array.iter().take(ELEMENTS_SHOWN_MAX);
            let elements: Vec<String> = elements.map(|element| shown(&element)).collect();
            let more = match array.len().checked_sub(elements.len()) {
                Some(more) if more > 0 => format!(", … {more} more"),
                _ => String::new(),
            };
            format!("[{}{more}]", elements.join(", "))
        }
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::Bool(yes) => yes.to_string(),
        whole => whole
            .as_integer()
            .map_or_else(String::new, |number| number.to_string()),
    }
}

fn shown_tensor(tensor: &TensorInfo<'_>) -> String {
    let dimensions = tensor.dimensions().iter().map(ToString::to_string);
    let dimensions: Vec<String> = dimensions.collect();
    let data = tensor.data_range();
    format!(
        "{:40} {:6} [{}] {} bytes at {}",
        tensor.name(),
        tensor.ggml_type(),
        dimensions.join(", "),
        data.len(),
        data.start
    )
}

/// Everything, with whole arrays.
fn to_json(header: &Header<'_>) -> serde_json::Value {
    let metadata: Map<String, serde_json::Value> = header
        .metadata()
        .iter()
        .map(|(key, value)| {
            let entry = json!({"type": value.kind().to_string(), "value": value_to_json(&value)});
            (key.to_owned(), entry)
        })
        .collect();
    let tensors: Vec<serde_json::Value> = header
        .tensors()
        .iter()
        .map(|tensor| {
            json!({
                "name": tensor.name(),
                "type": tensor.ggml_type().name(),
                "dimensions": tensor.dimensions(),
                "offset": tensor.data_range().start,
                "bytes": tensor.data_range().len(),
            })
        })
        .collect();
    json!({
        "version": header.version(),
        "alignment": header.alignment(),
        "metadata": metadata,
        "tensors": tensors,
    })
}

/// JSON has no infinities and no NaN; they become null.
fn value_to_json(value: &Value<'_>) -> serde_json::Value {
    match *value {
        Value::U8(number) => json!(number),
        Value::I8(number) => json!(number),
        Value::U16(number) => json!(number),
        Value::I16(number) => json!(number),
        Value::U32(number) => json!(number),
        Value::I32(number) => json!(number),
        Value::U64(number) => json!(number),
        Value::I64(number) => json!(number),
        Value::F32(number) => json!(number),
        Value::F64(number) => json!(number),
        Value::Bool(yes) => json!(yes),
        Value::String(text) => json!(text),
        Value::Array(array) => array_to_json(&array),
    }
}

fn array_to_json(array: &Array<'_>) -> serde_json::Value {
    array
        .iter()
        .map(|element| value_to_json(&element))
        .collect()
}
