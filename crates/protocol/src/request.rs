//! The canonical request: what a client wants, free of any API dialect. The server builds
//! it with every field checked against `limits`; the engine checks only what needs the
//! model (vocabulary, context, template).

use serde::{Deserialize, Serialize};

use crate::TokenId;

/// A chat in the shape every chat template reads: OpenAI's message objects, as JSON text,
/// because only the template knows which keys matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chat {
    /// JSON array of message objects.
    pub messages_json: String,
    /// JSON array of tool definitions.
    pub tools_json: Option<String>,
    /// JSON object of extra template variables (`chat_template_kwargs`).
    pub variables_json: Option<String>,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open for the model to continue.
    pub continue_final_message: bool,
}

/// What the model is to continue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Prompt {
    Chat(Chat),
    /// Plain text; special tokens in it are parsed, and BOS is added if the model wants it.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<TokenId>),
}

/// How the next token is drawn. Every value is finite and in range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Candidates kept, 0 for all.
    pub top_k: u32,
    /// Mass kept, in (0, 1].
    pub top_p: f32,
    /// Least probability relative to the best candidate, in [0, 1].
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of seen tokens; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the completion; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once per token present in the completion; 0 is off.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Noise is a pure function of (seed, choice, position).
    pub seed: u64,
}

impl Default for Sampling {
    /// Greedy, nothing penalised.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// When a choice ends, apart from the model's own end token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRules {
    /// A wish, clamped to what fits the context; `None` is "as much as fits".
    pub max_tokens: Option<u32>,
    /// End tokens and stop rules are ignored before this many tokens.
    pub min_tokens: u32,
    pub ignore_eos: bool,
    /// Non-empty; cut from the output.
    pub strings: Vec<String>,
    pub token_ids: Vec<TokenId>,
    /// Keep the matched stop string in the output.
    pub include_stop: bool,
}

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub prompt: Prompt,
    /// At least 1.
    pub choices: u16,
    pub sampling: Sampling,
    pub stop: StopRules,
    /// `Some(k)`: report the chosen token's log probability and the best `k` alternatives.
    pub logprobs: Option<u8>,
    /// Ask for the prompt's text back in `Accepted`.
    pub echo: bool,
}
