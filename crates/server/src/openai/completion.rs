//! The body of `POST /v1/completions`, from JSON to canonical requests, one per prompt.

use relight_protocol::limits::{
    PROMPT_BYTES_MAX, PROMPT_TOKENS_MAX, PROMPTS_MAX, TOP_LOGPROBS_MAX,
};
use relight_protocol::{Prompt, Request};

use super::sampling::{boolean, choices, sampling, stop_rules};
use super::unsupported::refuse_in_completion;
use super::{Call, Reply};
use crate::field::{Field, Kind, Object};
use crate::refusal::Refusal;

/// Reads a body. `random_seed` is called once per prompt if the body gives no seed.
pub(crate) fn completion_call(
    body: &[u8],
    mut random_seed: impl FnMut() -> u64,
) -> Result<Call, Refusal> {
    let body = Object::from_body(body)?;
    refuse_in_completion(&body)?;
    let choices = choices(&body)?;
    refuse_best_of(&body, choices)?;
    let echo = boolean(&body, &["echo"])?.unwrap_or(false);
    let logprobs = logprobs(&body, echo)?;
    let stop = stop_rules(&body)?;
    let prompts = prompts(&body.required("prompt")?)?;
    let mut requests = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        requests.push(Request {
            prompt,
            choices,
            sampling: sampling(&body, &mut random_seed)?,
            stop: stop.clone(),
            logprobs,
            echo,
        });
    }
    Ok(Call {
        reply: Reply::from_body(&body)?,
        requests,
    })
}

/// `best_of` candidates would have to be ranked; as many as are returned need no ranking.
fn refuse_best_of(body: &Object<'_>, choices: u16) -> Result<(), Refusal> {
    let Some(field) = body.field("best_of") else {
        return Ok(());
    };
    let candidates = field.integer(&(1..=i128::MAX))?;
    if candidates < i128::from(choices) {
        return Err(field.invalid(&format!("must not be below 'n', which is {choices}")));
    }
    if candidates > i128::from(choices) {
        let message = format!("'best_of' above 'n' is not supported by this server: {candidates}");
        return Err(Refusal::unsupported(field.path(), message));
    }
    Ok(())
}

/// `logprobs` is the number of alternatives here.
fn logprobs(body: &Object<'_>, echo: bool) -> Result<Option<u8>, Refusal> {
    let Some(field) = body.field("logprobs") else {
        return Ok(None);
    };
    // Routers in front of us add the chat dialect's switch to every body.
    if field.json() == "false" {
        return Ok(None);
    }
    let alternatives = field.integer(&(0..=i128::from(TOP_LOGPROBS_MAX)))?;
    if echo {
        let message = "'logprobs' of an echoed prompt are not supported by this server";
        return Err(Refusal::unsupported(field.path(), message));
    }
    Ok(Some(u8::try_from(alternatives).unwrap_or(TOP_LOGPROBS_MAX)))
}

/// A string, a list of strings, a list of token ids, or a list of such lists.
fn prompts(field: &Field<'_>) -> Result<Vec<Prompt>, Refusal> {
    match field.kind() {
        Kind::Text => Ok(vec![text_prompt(field)?]),
        Kind::List => list_prompts(field),
        Kind::Null | Kind::Boolean | Kind::Number | Kind::Object => {
            Err(field.wrong_kind("a string, a list of strings, or a list of token ids"))
        }
    }
}

fn list_prompts(field: &Field<'_>) -> Result<Vec<Prompt>, Refusal> {
    let first = field.list(PROMPT_TOKENS_MAX)?.iter().next();
    match first.map(|element| element.kind()) {
        None => Err(field.refused("must not be empty")),
        Some(Kind::Number) => Ok(vec![token_prompt(field)?]),
        Some(_) => field
            .list(PROMPTS_MAX)?
            .iter()
            .map(|element| match element.kind() {
                Kind::List => token_prompt(&element),
                _ => text_prompt(&element),
            })
            .collect(),
    }
}

fn token_prompt(field: &Field<'_>) -> Result<Prompt, Refusal> {
    let tokens = field.token_ids(PROMPT_TOKENS_MAX)?;
    if tokens.is_empty() {
        return Err(field.refused("must not be empty"));
    }
    Ok(Prompt::Tokens(tokens))
}

fn text_prompt(field: &Field<'_>) -> Result<Prompt, Refusal> {
    let text = field.text()?;
    if text.len() > PROMPT_BYTES_MAX {
        let found = text.len();
        let message = format!("has {found} bytes, the limit is {PROMPT_BYTES_MAX}");
        return Err(field.refused(&message));
    }
    Ok(Prompt::Text(text))
}

#[cfg(test)]
mod tests;
