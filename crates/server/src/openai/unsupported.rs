//! The fields that this server knows and cannot honour although they change the answer.
//! Each is refused by name unless its value asks for nothing: silence would be a lie.
//! `docs/api.md` lists the same keys; a test compares.

use crate::field::{Field, Kind, Object};
use crate::refusal::Refusal;

/// Which value of a field asks for nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Neutral {
    /// Only an absent or `null` field.
    Absent,
    False,
    True,
    Number(f64),
    /// Any number up to this one.
    AtMost(f64),
    /// An empty string, list or object.
    Empty,
    /// One of these strings.
    Words(&'static [&'static str]),
}

/// Fields of every endpoint that generates text.
const SHARED: &[(&str, Neutral)] = &[
    // Constrained output.
    ("json_schema", Neutral::Absent),
    ("grammar", Neutral::Empty),
    ("grammar_string", Neutral::Empty),
    ("regex_pattern", Neutral::Empty),
    ("structured_outputs", Neutral::Empty),
    ("guided_json", Neutral::Absent),
    ("guided_regex", Neutral::Empty),
    ("guided_choice", Neutral::Empty),
    ("guided_grammar", Neutral::Empty),
    // Samplers.
    ("typical_p", Neutral::Number(1.0)),
    ("typical", Neutral::Number(1.0)),
    ("tfs", Neutral::Number(1.0)),
    ("top_a", Neutral::Number(0.0)),
    ("top_n_sigma", Neutral::AtMost(0.0)),
    ("nsigma", Neutral::AtMost(0.0)),
    ("mirostat", Neutral::Number(0.0)),
    ("mirostat_mode", Neutral::Number(0.0)),
    ("dynatemp_range", Neutral::Number(0.0)),
    ("smoothing_factor", Neutral::Number(0.0)),
    ("skew", Neutral::Number(0.0)),
    ("xtc_probability", Neutral::Number(0.0)),
    ("dry_multiplier", Neutral::Number(0.0)),
    ("epsilon_cutoff", Neutral::Number(0.0)),
    ("eta_cutoff", Neutral::Number(0.0)),
    ("cfg_scale", Neutral::Number(1.0)),
    ("negative_prompt", Neutral::Empty),
    ("repeat_last_n", Neutral::Number(-1.0)),
    ("penalty_range", Neutral::AtMost(0.0)),
    ("use_beam_search", Neutral::False),
    ("length_penalty", Neutral::Number(1.0)),
    // Banned and allowed output.
    ("banned_tokens", Neutral::Empty),
    ("custom_token_bans", Neutral::Empty),
    ("banned_strings", Neutral::Empty),
    ("bad_words", Neutral::Empty),
    ("allowed_token_ids", Neutral::Absent),
    ("logits_processors", Neutral::Empty),
    // Other forms of input and output.
    ("skip_special_tokens", Neutral::True),
    ("truncate_prompt_tokens", Neutral::Absent),
    ("prompt_logprobs", Neutral::Absent),
    ("prompt_embeds", Neutral::Absent),
    ("return_hidden_states", Neutral::False),
    ("return_token_ids", Neutral::False),
    ("return_tokens_as_token_ids", Neutral::False),
];

/// Fields of Chat Completions alone.
const CHAT: &[(&str, Neutral)] = &[
    ("tools", Neutral::Empty),
    ("functions", Neutral::Empty),
    ("tool_choice", Neutral::Words(&["none", "auto"])),
    ("function_call", Neutral::Words(&["none", "auto"])),
    ("audio", Neutral::Absent),
    ("web_search_options", Neutral::Absent),
    ("documents", Neutral::Empty),
    ("echo", Neutral::False),
    ("response_prefix", Neutral::Empty),
    ("reasoning", Neutral::Absent),
    ("reasoning_budget_tokens", Neutral::Absent),
    ("best_of", Neutral::Number(1.0)),
];

/// Fields of Completions alone.
const COMPLETION: &[(&str, Neutral)] = &[("suffix", Neutral::Empty)];

/// Refuses a Chat Completions body that asks for something we do not have.
pub(crate) fn refuse_in_chat(body: &Object<'_>) -> Result<(), Refusal> {
    refuse_response_format(body)?;
    refuse_modalities(body)?;
    refuse_known(body, SHARED)?;
    refuse_known(body, CHAT)
}

/// Refuses a Completions body that asks for something we do not have.
pub(crate) fn refuse_in_completion(body: &Object<'_>) -> Result<(), Refusal> {
    refuse_response_format(body)?;
    refuse_known(body, SHARED)?;
    refuse_known(body, COMPLETION)
}

fn refuse_known(body: &Object<'_>, known: &[(&str, Neutral)]) -> Result<(), Refusal> {
    for (key, neutral) in known {
        if let Some(field) = body.field(key)
            && !is_neutral(&field, *neutral)
        {
            return Err(unsupported(&field));
        }
    }
    Ok(())
}

fn refuse_response_format(body: &Object<'_>) -> Result<(), Refusal> {
    let Some(format) = body.field("response_format") else {
        return Ok(());
    };
    let kind = format.object()?.required("type")?;
    if is_neutral(&kind, Neutral::Words(&["text"])) {
        return Ok(());
    }
    Err(unsupported(&kind))
}

fn refuse_modalities(body: &Object<'_>) -> Result<(), Refusal> {
    let Some(modalities) = body.field("modalities") else {
        return Ok(());
    };
    // More than text and audio have never been named.
    for modality in modalities.list(8)?.iter() {
        if !is_neutral(&modality, Neutral::Words(&["text"])) {
            return Err(unsupported(&modality));
        }
    }
    Ok(())
}

fn unsupported(field: &Field<'_>) -> Refusal {
    let (path, value) = (field.path(), field.quote());
    Refusal::unsupported(
        path,
        format!("'{path}' is not supported by this server: {value}"),
    )
}

fn is_neutral(field: &Field<'_>, neutral: Neutral) -> bool {
    let number = || match field.kind() {
        Kind::Number => field.number(&(f64::MIN..=f64::MAX)).ok(),
        _ => None,
    };
    match neutral {
        Neutral::Absent => false,
        Neutral::False => field.json() == "false",
        Neutral::True => field.json() == "true",
        Neutral::Number(wanted) => number() == Some(wanted),
        Neutral::AtMost(limit) => number().is_some_and(|value| value <= limit),
        Neutral::Empty => match field.kind() {
            Kind::Text => field.json() == "\"\"",
            Kind::List => field.list(0).is_ok(),
            Kind::Object => field.object().is_ok_and(|object| object.is_empty()),
            Kind::Null | Kind::Boolean | Kind::Number => false,
        },
        Neutral::Words(words) => field
            .text()
            .is_ok_and(|text| words.contains(&text.as_str())),
    }
}

#[cfg(test)]
mod tests;
