//! From a request to token ids and the private state of its choices: whatever needs the
//! vocabulary or the template, on a thread of its own and behind a panic boundary.

mod checks;

use relight_model::sampler::{Sampler, SamplerSettings};
use relight_model::text::{ChatInput, Detokenizer, EncodeOptions, StopMatcher};
use relight_protocol::limits::PROMPT_BYTES_MAX;
use relight_protocol::{Chat, ChoiceIndex, Fault, Phase, Prompt, Request, Resume, TokenId};

use crate::completion::{Completion, CompletionParts, EndRules};
use crate::containment::{PrivateFault, Task, contained};
use crate::core::PrepareJob;
use crate::cost;
use crate::language::Language;

/// Up to this size a prompt that is too long is tokenized all the same, so that the refusal
/// can state its exact length; beyond it, the least that its bytes can come to.
const EXACT_COUNT_BYTES_MAX: usize = 1 << 20;

/// What preparing needs to know besides the request.
#[derive(Clone, Copy, Debug)]
pub struct PrepareContext<'a> {
    pub language: &'a Language,
    /// Tokens of prompt and completion together.
    pub context_tokens: u32,
    /// What templates show as the time, in seconds since 1970 UTC.
    pub now_unix_seconds: i64,
}

/// A choice, ready to go on.
#[derive(Debug)]
pub(crate) struct PreparedChoice<'a> {
    pub(crate) choice: ChoiceIndex,
    /// Has taken all of `committed`.
    pub(crate) completion: Completion<'a>,
    /// What an earlier engine generated.
    pub(crate) committed: Vec<u32>,
    /// Whether its end is known to the other side.
    pub(crate) is_finished: bool,
}

/// A request, ready to be scheduled.
#[derive(Debug)]
pub struct Prepared<'a> {
    pub(crate) prompt: Vec<u32>,
    /// If it was asked for.
    pub(crate) prompt_text: Option<String>,
    pub(crate) choices: Vec<PreparedChoice<'a>>,
    /// Whether the other side knows the prompt already.
    pub(crate) is_resumed: bool,
}

/// Does a job of the core, behind the panic boundary of the request's private work.
///
/// # Errors
/// What is wrong with the request.
pub fn run_job<'a>(
    context: &PrepareContext<'a>,
    job: &PrepareJob,
) -> Result<Prepared<'a>, PrivateFault> {
    let task = Task {
        request: job.id,
        phase: Phase::Prepare,
        predicted_ms: cost::prepare_ms(bytes_of(job)),
    };
    contained(task, || prepare(context, &job.request, job.resume.as_ref()))
}

/// How much there is to read.
fn bytes_of(job: &PrepareJob) -> usize {
    let prompt = match &job.request.prompt {
        Prompt::Tokens(tokens) => size_of_val(tokens.as_slice()),
        Prompt::Text(text) => text.len(),
        Prompt::Chat(chat) => {
            let optional = |json: &Option<String>| json.as_ref().map_or(0, String::len);
            chat.messages_json.len() + optional(&chat.tools_json) + optional(&chat.variables_json)
        }
    };
    let known = job.resume.iter().flat_map(|resume| {
        let committed = resume.choices.iter().map(|choice| choice.tokens.len());
        committed.chain([resume.prompt_tokens.len()])
    });
    prompt + size_of::<u32>() * known.sum::<usize>()
}

/// An empty vector with room for this many, of whatever there is one for each token.
///
/// # Errors
/// `OutOfMemory` where that can be seen.
pub(crate) fn room_for<T>(count: usize) -> Result<Vec<T>, Fault> {
    let mut tokens = Vec::new();
    let reserved = tokens.try_reserve_exact(count);
    reserved.map_err(|_error| Fault::OutOfMemory)?;
    Ok(tokens)
}

fn plain_ids(tokens: &[TokenId]) -> Result<Vec<u32>, Fault> {
    let mut ids = room_for(tokens.len())?;
    ids.extend(tokens.iter().map(|id| id.0));
    Ok(ids)
}

/// Prepares a request.
///
/// # Errors
/// What is wrong with the request.
fn prepare<'a>(
    context: &PrepareContext<'a>,
    request: &Request,
    resume: Option<&Resume>,
) -> Result<Prepared<'a>, Fault> {
    checks::check_vocabulary(context.language.tokenizer(), request)?;
    let (prompt, prompt_text) = match resume {
        Some(resume) => (plain_ids(&resume.prompt_tokens)?, None),
        None => tokenize(context, request)?,
    };
    checks::check_prompt(context.language.tokenizer(), &prompt, resume)?;
    let prompt_count = narrow(prompt.len());
    let room = context.context_tokens.saturating_sub(prompt_count);
    if room == 0 {
        return Err(Fault::ContextFull {
            prompt_tokens: prompt_count,
            context_tokens: context.context_tokens,
        });
    }
    let tokens_max = request.stop.max_tokens.unwrap_or(room).min(room);
    let rules = end_rules(context.language, request, tokens_max);
    let choices = (0..request.choices).map(|index| {
        let mut sampler = Sampler::new(settings(request), index);
        sampler.observe_prompt(&prompt);
        let parts = CompletionParts {
            sampler,
            matcher: matcher(request),
            rules: rules.clone(),
            prompt_count,
        };
        let completion = Completion::new(context.language, parts);
        replay(completion, ChoiceIndex(index), resume)
    });
    let choices = choices.collect::<Result<_, Fault>>()?;
    Ok(Prepared {
        choices,
        prompt,
        prompt_text,
        is_resumed: resume.is_some(),
    })
}

/// Feeds a choice what an earlier engine generated for it.
fn replay<'a>(
    mut completion: Completion<'a>,
    choice: ChoiceIndex,
    resume: Option<&Resume>,
) -> Result<PreparedChoice<'a>, Fault> {
    let progress =
        resume.and_then(|resume| resume.choices.iter().find(|known| known.choice == choice));
    let (committed, is_finished) = match progress {
        Some(known) => (plain_ids(&known.tokens)?, known.finished),
        None => (Vec::new(), false),
    };
    for token in &committed {
        completion.accept(*token);
    }
    Ok(PreparedChoice {
        choice,
        completion,
        committed,
        is_finished,
    })
}

fn settings(request: &Request) -> SamplerSettings {
    let sampling = &request.sampling;
    let bias = sampling.logit_bias.iter();
    SamplerSettings {
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        repetition_penalty: sampling.repetition_penalty,
        frequency_penalty: sampling.frequency_penalty,
        presence_penalty: sampling.presence_penalty,
        logit_bias: bias.map(|(token, bias)| (token.0, *bias)).collect(),
        seed: sampling.seed,
        logprobs: request.logprobs,
    }
}

fn matcher(request: &Request) -> StopMatcher {
    let strings = request.stop.strings.iter().map(String::as_str);
    StopMatcher::new(strings, request.stop.include_stop)
}

fn end_rules(language: &Language, request: &Request, tokens_max: u32) -> EndRules {
    let end_tokens = language.tokenizer().end_of_generation();
    let mut ending: Vec<u32> = request.stop.token_ids.iter().map(|id| id.0).collect();
    let mut banned = Vec::new();
    if request.stop.ignore_eos {
        banned.extend(end_tokens);
        // A token that the client itself named still ends its choice.
        banned.retain(|token| !ending.contains(token));
    } else {
        ending.extend(end_tokens);
    }
    ending.sort_unstable();
    ending.dedup();
    EndRules {
        ending,
        banned,
        tokens_min: request.stop.min_tokens,
        tokens_max,
        include_stop: request.stop.include_stop,
    }
}

/// Token ids of the prompt, and its text if that was asked for.
fn tokenize(
    context: &PrepareContext<'_>,
    request: &Request,
) -> Result<(Vec<u32>, Option<String>), Fault> {
    let tokenizer = context.language.tokenizer();
    let (text, param, add_special) = match &request.prompt {
        Prompt::Tokens(tokens) => {
            checks::check_token_count(tokens.len())?;
            let ids = plain_ids(tokens)?;
            let text = request.echo.then(|| {
                let mut detokenizer = Detokenizer::document(tokenizer);
                let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
                text.push_str(&detokenizer.finish());
                text
            });
            return Ok((ids, text));
        }
        Prompt::Text(text) => (text.clone(), "prompt", true),
        Prompt::Chat(chat) => (render(context, chat)?, "messages", false),
    };
    check_bytes(context, &text, param)?;
    let options = EncodeOptions {
        add_special,
        parse_special: true,
    };
    let ids = tokenizer
        .encode(&text, options)
        .map_err(|error| Fault::invalid(param, error.to_string()))?;
    Ok((ids, request.echo.then_some(text)))
}

fn render(context: &PrepareContext<'_>, chat: &Chat) -> Result<String, Fault> {
    let invalid = |error: &dyn std::fmt::Display| Fault::invalid("messages", error.to_string());
    let template = context
        .language
        .template()
        .map_err(|error| invalid(error))?;
    let input = ChatInput::from_json(
        &chat.messages_json,
        chat.tools_json.as_deref(),
        chat.variables_json.as_deref(),
    )
    .map_err(|error| invalid(&error))?;
    let input = ChatInput {
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        now_unix_seconds: context.now_unix_seconds,
        ..input
    };
    template.render(&input).map_err(|error| invalid(&error))
}

/// Refuses text that is too long to be tokenized at all, or so long that it cannot fit
/// whatever its tokens are.
fn check_bytes(context: &PrepareContext<'_>, text: &str, param: &str) -> Result<(), Fault> {
    if text.len() > PROMPT_BYTES_MAX {
        let message = format!(
            "the prompt has {} bytes, the limit is {PROMPT_BYTES_MAX}",
            text.len()
        );
        return Err(Fault::invalid(param, message));
    }
    let longest = context.language.tokenizer().longest_token_bytes().max(1);
    let tokens_min = narrow(text.len() / longest);
    if text.len() > EXACT_COUNT_BYTES_MAX && tokens_min > context.context_tokens {
        return Err(Fault::ContextFull {
            prompt_tokens: tokens_min,
            context_tokens: context.context_tokens,
        });
    }
    Ok(())
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
