//! What of a request only the model can judge.

use relight_model::text::Tokenizer;
use relight_protocol::limits::PROMPT_TOKENS_MAX;
use relight_protocol::{Fault, Prompt, Request, Resume, TokenId};

/// All ids that the client named are in the vocabulary.
pub(super) fn check_vocabulary(tokenizer: &Tokenizer, request: &Request) -> Result<(), Fault> {
    let vocabulary = tokenizer.vocabulary_size();
    let biased = request
        .sampling
        .logit_bias
        .iter()
        .map(|(token, _bias)| token);
    check_ids(vocabulary, "logit_bias", biased)?;
    check_ids(vocabulary, "stop_token_ids", request.stop.token_ids.iter())?;
    if let Prompt::Tokens(tokens) = &request.prompt {
        check_ids(vocabulary, "prompt", tokens.iter())?;
    }
    Ok(())
}

fn check_ids<'a>(
    vocabulary: usize,
    param: &str,
    tokens: impl Iterator<Item = &'a TokenId>,
) -> Result<(), Fault> {
    for token in tokens {
        if usize::try_from(token.0).map_or(true, |id| id >= vocabulary) {
            let message = format!(
                "token id {} is outside the vocabulary of {vocabulary} tokens",
                token.0
            );
            return Err(Fault::invalid(param, message));
        }
    }
    Ok(())
}

/// A prompt given as ids is not longer than any context we serve.
pub(super) fn check_token_count(count: usize) -> Result<(), Fault> {
    if count > PROMPT_TOKENS_MAX {
        let message = format!("the prompt has {count} token ids, the limit is {PROMPT_TOKENS_MAX}");
        return Err(Fault::invalid("prompt", message));
    }
    Ok(())
}

/// There is something to continue, and what an earlier engine reported is of this model.
pub(super) fn check_prompt(
    tokenizer: &Tokenizer,
    prompt: &[u32],
    resume: Option<&Resume>,
) -> Result<(), Fault> {
    if prompt.is_empty() {
        return Err(Fault::invalid("prompt", "the prompt has no tokens"));
    }
    if let Some(resume) = resume {
        let vocabulary = tokenizer.vocabulary_size();
        let committed = resume.choices.iter().flat_map(|known| &known.tokens);
        check_ids(
            vocabulary,
            "prompt",
            resume.prompt_tokens.iter().chain(committed),
        )?;
    }
    Ok(())
}
