//! The body of `POST /v1/chat/completions`, from JSON to the canonical request.

use relight_protocol::limits::{PROMPT_BYTES_MAX, TOP_LOGPROBS_MAX};
use relight_protocol::{Chat, Prompt, Request};

use super::message::{messages_json, push_string};
use super::sampling::{boolean, choices, sampling, stop_rules};
use super::unsupported::refuse_in_chat;
use super::{Call, Reply};
use crate::field::Object;
use crate::refusal::Refusal;

/// Template variables that clients also send at the top level of the body.
const VARIABLES: [&str; 2] = ["enable_thinking", "reasoning_effort"];

/// Reads a body. `random_seed` is called if the body gives no seed.
pub(crate) fn chat_call(body: &[u8], random_seed: impl FnOnce() -> u64) -> Result<Call, Refusal> {
    let body = Object::from_body(body)?;
    refuse_in_chat(&body)?;
    let chat = chat(&body)?;
    let request = Request {
        prompt: Prompt::Chat(chat),
        choices: choices(&body)?,
        sampling: sampling(&body, random_seed)?,
        stop: stop_rules(&body)?,
        logprobs: logprobs(&body)?,
        echo: false,
    };
    Ok(Call {
        reply: Reply::from_body(&body)?,
        requests: vec![request],
    })
}

fn chat(body: &Object<'_>) -> Result<Chat, Refusal> {
    let messages_json = messages_json(&body.required("messages")?)?;
    let continue_final_message = boolean(body, &["continue_final_message"])?.unwrap_or(false);
    let generation_prompt = boolean(body, &["add_generation_prompt"])?;
    if continue_final_message && generation_prompt == Some(true) {
        let message = "'continue_final_message' and 'add_generation_prompt' exclude each other";
        return Err(Refusal::invalid("continue_final_message", message));
    }
    Ok(Chat {
        messages_json,
        tools_json: None,
        variables_json: variables_json(body)?,
        add_generation_prompt: generation_prompt.unwrap_or(!continue_final_message),
        continue_final_message,
    })
}

/// The template variables of the body as one JSON object.
fn variables_json(body: &Object<'_>) -> Result<Option<String>, Refusal> {
    let object = match body.field_of(&["chat_template_kwargs", "template_vars"])? {
        Some(field) => Some(field.object()?),
        None => None,
    };
    let named = object.iter().flat_map(Object::iter);
    let at_top = VARIABLES
        .iter()
        .filter(|key| {
            object
                .as_ref()
                .is_none_or(|object| object.field(key).is_none())
        })
        .filter_map(|key| body.field(key).map(|field| (*key, field)));
    let mut json = String::new();
    for (key, value) in named.chain(at_top) {
        value.check()?;
        json.push(if json.is_empty() { '{' } else { ',' });
        push_string(&mut json, key);
        json.push(':');
        json.push_str(value.json());
    }
    if json.len() > PROMPT_BYTES_MAX {
        let message = format!("the template variables have more than {PROMPT_BYTES_MAX} bytes");
        return Err(Refusal::invalid("chat_template_kwargs", message));
    }
    json.push('}');
    Ok((json.len() > 1).then_some(json))
}

/// `logprobs` is a switch here, and `top_logprobs` the number of alternatives.
fn logprobs(body: &Object<'_>) -> Result<Option<u8>, Refusal> {
    let wanted = boolean(body, &["logprobs"])?.unwrap_or(false);
    let Some(field) = body.field("top_logprobs") else {
        return Ok(wanted.then_some(0));
    };
    let alternatives = field.integer(&(0..=i128::from(TOP_LOGPROBS_MAX)))?;
    let alternatives = u8::try_from(alternatives).unwrap_or(TOP_LOGPROBS_MAX);
    if !wanted && alternatives > 0 {
        let message = "'top_logprobs' needs 'logprobs' to be true";
        return Err(Refusal::invalid(field.path(), message));
    }
    Ok(wanted.then_some(alternatives))
}

#[cfg(test)]
mod tests;
