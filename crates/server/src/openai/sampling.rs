//! How a body says which token is drawn next and when a choice ends; the same fields in
//! every OpenAI-like dialect. Ranges are checked here, the vocabulary by the engine.

use std::ops::RangeInclusive;

use relight_protocol::limits::{
    CHOICES_MAX, LOGIT_BIAS_MAX, STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX, STOP_TOKEN_IDS_MAX,
    TOP_K_MAX,
};
use relight_protocol::{Sampling, StopRules, TokenId};

use crate::field::{Field, Kind, Object};
use crate::refusal::Refusal;

/// Used when a body does not say, as OpenAI documents it.
const TEMPERATURE_DEFAULT: f32 = 1.0;
const TEMPERATURE: RangeInclusive<f64> = 0.0..=100.0;
/// Below this the best token has all the mass that `f32` can tell apart: greedy.
const TEMPERATURE_GREEDY: f32 = 1e-5;
/// The least `top_p`; 0 would keep no candidate at all.
const TOP_P: RangeInclusive<f64> = 1e-9..=1.0;
const MIN_P: RangeInclusive<f64> = 0.0..=1.0;
const REPETITION_PENALTY: RangeInclusive<f64> = 0.01..=100.0;
const PENALTY: RangeInclusive<f64> = -2.0..=2.0;
const LOGIT_BIAS: RangeInclusive<f64> = -100.0..=100.0;
/// -1 is vLLM's and TabbyAPI's way to say 0.
const TOP_K: RangeInclusive<i128> = -1..=TOP_K_MAX as i128;
/// OpenAI's seeds are signed, llama.cpp's are not.
const SEED: RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;
/// The seed by which local clients ask for a random one.
const SEED_RANDOM: i128 = -1;
/// A token limit is a wish that the engine clamps, so any size is fine.
const TOKENS: RangeInclusive<i128> = 1..=i128::MAX;
const TOKENS_OR_NONE: RangeInclusive<i128> = 0..=i128::MAX;

/// Reads the sampler fields. `random_seed` is called if the body gives no seed.
pub(crate) fn sampling(
    body: &Object<'_>,
    random_seed: impl FnOnce() -> u64,
) -> Result<Sampling, Refusal> {
    let number = |keys: &[&str], range, default| number_or(body, keys, range, default);
    let temperature = number(&["temperature"], &TEMPERATURE, TEMPERATURE_DEFAULT)?;
    Ok(Sampling {
        temperature: if temperature < TEMPERATURE_GREEDY {
            0.0
        } else {
            temperature
        },
        top_k: top_k(body)?,
        top_p: number(&["top_p"], &TOP_P, 1.0)?,
        min_p: number(&["min_p"], &MIN_P, 0.0)?,
        repetition_penalty: number(
            &["repetition_penalty", "rep_pen", "repeat_penalty"],
            &REPETITION_PENALTY,
            1.0,
        )?,
        frequency_penalty: number(&["frequency_penalty"], &PENALTY, 0.0)?,
        presence_penalty: number(&["presence_penalty"], &PENALTY, 0.0)?,
        logit_bias: logit_bias(body)?,
        seed: seed(body)?.unwrap_or_else(random_seed),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "every range lies within f32, whose rounding is what the engine computes with"
)]
fn number_or(
    body: &Object<'_>,
    keys: &[&str],
    range: &RangeInclusive<f64>,
    default: f32,
) -> Result<f32, Refusal> {
    match body.field_of(keys)? {
        Some(field) => Ok(field.number(range)? as f32),
        None => Ok(default),
    }
}

fn top_k(body: &Object<'_>) -> Result<u32, Refusal> {
    match body.field("top_k") {
        Some(field) => Ok(u32::try_from(field.integer(&TOP_K)?).unwrap_or(0)),
        None => Ok(0),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a negative seed keeps its 64 bits, whatever they mean as unsigned"
)]
fn seed(body: &Object<'_>) -> Result<Option<u64>, Refusal> {
    let Some(field) = body.field("seed") else {
        return Ok(None);
    };
    let seed = field.integer(&SEED)?;
    Ok((seed != SEED_RANDOM).then_some(seed as u64))
}

#[expect(clippy::cast_possible_truncation, reason = "the range lies within f32")]
fn logit_bias(body: &Object<'_>) -> Result<Vec<(TokenId, f32)>, Refusal> {
    let Some(field) = body.field("logit_bias") else {
        return Ok(Vec::new());
    };
    let mut biases: Vec<(TokenId, f32)> = Vec::new();
    for (key, value) in field.object_of(LOGIT_BIAS_MAX)?.iter() {
        let Ok(token) = key.parse::<u32>() else {
            let message = format!("'{}' must have token ids as keys", field.path());
            return Err(Refusal::invalid(value.path(), message));
        };
        biases.push((TokenId(token), value.number(&LOGIT_BIAS)? as f32));
    }
    Ok(biases)
}

/// Reads the fields that say when a choice ends.
pub(crate) fn stop_rules(body: &Object<'_>) -> Result<StopRules, Refusal> {
    let limit = body.field_of(&["max_completion_tokens", "max_tokens", "max_length"])?;
    let least = body.field_of(&["min_tokens", "min_length"])?;
    let max_tokens = limit
        .map(|field| field.integer(&TOKENS).map(saturating_u32))
        .transpose()?;
    let min_tokens = match &least {
        Some(field) => saturating_u32(field.integer(&TOKENS_OR_NONE)?),
        None => 0,
    };
    if let (Some(max_tokens), Some(field)) = (max_tokens, &least)
        && min_tokens > max_tokens
    {
        return Err(field.invalid(&format!(
            "must not be above the limit of {max_tokens} tokens"
        )));
    }
    let include_stop = boolean(body, &["include_stop_str_in_output", "no_stop_trim"])?;
    Ok(StopRules {
        max_tokens,
        min_tokens,
        ignore_eos: boolean(body, &["ignore_eos", "ban_eos_token"])?.unwrap_or(false),
        strings: stop_strings(body)?,
        token_ids: match body.field("stop_token_ids") {
            Some(field) => field.token_ids(STOP_TOKEN_IDS_MAX)?,
            None => Vec::new(),
        },
        include_stop: include_stop.unwrap_or(false),
    })
}

fn saturating_u32(tokens: i128) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn stop_strings(body: &Object<'_>) -> Result<Vec<String>, Refusal> {
    let Some(field) = body.field_of(&["stop", "stop_sequence"])? else {
        return Ok(Vec::new());
    };
    if field.kind() == Kind::List {
        let list = field.list(STOP_STRINGS_MAX)?;
        return list.iter().map(|element| stop_string(&element)).collect();
    }
    Ok(vec![stop_string(&field)?])
}

fn stop_string(field: &Field<'_>) -> Result<String, Refusal> {
    let text = field.text()?;
    if text.is_empty() {
        return Err(field.refused("must not be empty"));
    }
    if text.len() > STOP_STRING_BYTES_MAX {
        let message = format!("must not have more than {STOP_STRING_BYTES_MAX} bytes");
        return Err(field.refused(&message));
    }
    Ok(text)
}

/// The number of choices, `n`.
pub(crate) fn choices(body: &Object<'_>) -> Result<u16, Refusal> {
    match body.field("n") {
        Some(field) => {
            let choices = field.integer(&(1..=i128::from(CHOICES_MAX)))?;
            Ok(u16::try_from(choices).unwrap_or(CHOICES_MAX))
        }
        None => Ok(1),
    }
}

/// A boolean under one of several names.
pub(crate) fn boolean(body: &Object<'_>, keys: &[&str]) -> Result<Option<bool>, Refusal> {
    body.field_of(keys)?
        .map(|field| field.boolean())
        .transpose()
}

#[cfg(test)]
mod tests;
