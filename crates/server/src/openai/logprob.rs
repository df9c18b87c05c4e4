//! Log probabilities in the two forms of the dialect.

use relight_protocol::TokenLogprob;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// JSON has no infinity; OpenAI writes this for a token that cannot happen.
const LOGPROB_LEAST: f32 = -9999.0;

/// Log probabilities of one or more tokens of a chat, in order.
#[derive(Debug, Serialize)]
pub(super) struct ChatLogprobs {
    content: Vec<ChatToken>,
    refusal: Option<()>,
}

#[derive(Debug, Serialize)]
struct ChatToken {
    #[serde(flatten)]
    token: ChatAlternative,
    top_logprobs: Vec<ChatAlternative>,
}

#[derive(Debug, Serialize)]
struct ChatAlternative {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatAlternative {
    fn new(token: &TokenLogprob) -> Self {
        Self {
            token: String::from_utf8_lossy(&token.bytes).into_owned(),
            logprob: finite(token.logprob),
            bytes: token.bytes.clone(),
        }
    }
}

impl ChatLogprobs {
    /// Takes for each token the chosen one and what else there was; `top_max` of them all
    /// are listed. `None` if nothing was asked for.
    pub(super) fn new<'a>(
        tokens: impl IntoIterator<Item = &'a [TokenLogprob]>,
        top_max: usize,
    ) -> Option<Self> {
        let content: Vec<ChatToken> = tokens
            .into_iter()
            .filter_map(|token| {
                let chosen = token.first()?;
                let best = best(token).into_iter().take(top_max);
                Some(ChatToken {
                    token: ChatAlternative::new(chosen),
                    top_logprobs: best.map(ChatAlternative::new).collect(),
                })
            })
            .collect();
        let refusal = None;
        (!content.is_empty()).then_some(Self { content, refusal })
    }
}

/// Log probabilities of one or more tokens of a completion: lists of equal length.
#[derive(Debug, Default, Serialize)]
pub(super) struct CompletionLogprobs {
    /// Where each token's text begins, in characters of the choice's text.
    text_offset: Vec<usize>,
    token_logprobs: Vec<f32>,
    tokens: Vec<String>,
    top_logprobs: Vec<CompletionTop>,
}

impl CompletionLogprobs {
    /// Adds a token whose text begins at `text_offset`, with the `top_max` best of its
    /// alternatives and the chosen one even if it is not among them.
    pub(super) fn push(&mut self, token: &[TokenLogprob], text_offset: usize, top_max: usize) {
        let Some(chosen) = token.first() else {
            return;
        };
        self.text_offset.push(text_offset);
        self.token_logprobs.push(finite(chosen.logprob));
        self.tokens.push(spelling(&chosen.bytes));
        let mut top: Vec<&TokenLogprob> = best(token).into_iter().take(top_max).collect();
        if !top.iter().any(|best| best.token == chosen.token) {
            top.push(chosen);
        }
        let entry = |token: &&TokenLogprob| (spelling(&token.bytes), finite(token.logprob));
        self.top_logprobs
            .push(CompletionTop(top.iter().map(entry).collect()));
    }

    /// `None` if no token was added.
    pub(super) fn into_option(self) -> Option<Self> {
        (!self.tokens.is_empty()).then_some(self)
    }
}

/// Spellings and log probabilities as one JSON object, best first.
#[derive(Debug)]
struct CompletionTop(Vec<(String, f32)>);

impl Serialize for CompletionTop {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (index, (spelling, logprob)) in self.0.iter().enumerate() {
            // Different tokens may be spelt alike; a key is there once, with its best value.
            let before = self.0.iter().take(index);
            if !before
                .into_iter()
                .any(|(earlier, _logprob)| earlier == spelling)
            {
                map.serialize_entry(spelling, logprob)?;
            }
        }
        map.end()
    }
}

/// The chosen token and its alternatives, each once, the likeliest first.
fn best(token: &[TokenLogprob]) -> Vec<&TokenLogprob> {
    let mut best: Vec<&TokenLogprob> = Vec::with_capacity(token.len());
    for candidate in token {
        if !best.iter().any(|known| known.token == candidate.token) {
            best.push(candidate);
        }
    }
    best.sort_by(|a, b| finite(b.logprob).total_cmp(&finite(a.logprob)));
    best
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() {
        logprob.max(LOGPROB_LEAST)
    } else {
        LOGPROB_LEAST
    }
}

/// The token as text, or its bytes in OpenAI's notation if they are part of a character.
fn spelling(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_part_of_a_character) => {
            let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", escaped.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests;
