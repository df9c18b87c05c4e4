//! Which tokens end a generation: those the file names, and those whose names are known to
//! mean it, because many files name only one.

use std::collections::BTreeSet;

use relight_gguf::Metadata;

use super::TextError;
use super::tokenizer::token_id;
use super::vocabulary::{TokenKind, Vocabulary};

const END_OF_TURN: &str = "tokenizer.ggml.eot_token_id";
const END_OF_MESSAGE: &str = "tokenizer.ggml.eom_token_id";

/// Names that end a turn or a text in every vocabulary where they are special tokens.
/// `</s>` and `<eos>` are not among them: some vocabularies have them as plain mark-up.
const NAMES: [&str; 17] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
];

/// Whether a token of this name is a control token even where the file calls it text.
pub(super) fn is_known_end(name: &str) -> bool {
    name.starts_with(['<', '[']) && NAMES.contains(&name)
}

/// Ids of all tokens that end a generation.
pub(super) fn end_tokens(
    metadata: &Metadata<'_>,
    vocabulary: &Vocabulary,
    eos: Option<u32>,
) -> Result<BTreeSet<u32>, TextError> {
    let mut ends: BTreeSet<u32> = eos.into_iter().collect();
    for key in [END_OF_TURN, END_OF_MESSAGE] {
        ends.extend(token_id(metadata, key, vocabulary.len())?);
    }
    let known: Vec<(&str, u32)> = vocabulary
        .kinds()
        .filter(|(_, kind)| matches!(kind, TokenKind::Control | TokenKind::UserDefined))
        .filter_map(|(token, _)| {
            let name = vocabulary.bytes(token)?;
            let known = NAMES.iter().find(|known| known.as_bytes() == name)?;
            Some((*known, token))
        })
        .collect();
    ends.extend(known.iter().map(|&(_, token)| token));
    // Where a message can end in a call or a return, `<|end|>` only ends one of its channels.
    let has = |wanted: &str| known.iter().any(|&(name, _)| name == wanted);
    if (has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>")) {
        let inner = known.iter().find(|(name, _)| *name == "<|end|>");
        if let Some((_, token)) = inner {
            ends.remove(token);
        }
    }
    Ok(ends)
}
