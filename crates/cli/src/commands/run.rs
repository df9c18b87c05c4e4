//! `relight run`.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use relight_protocol::{Sampling, limits};

use crate::args::RunArguments;
use crate::conversation::{self, RunOptions};

/// Answers the prompt, standard input, or a conversation.
///
/// # Errors
/// If the model cannot be had or an argument is out of range.
pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode> {
    for (flag, reason) in arguments.engine.inert() {
        tracing::info!("{flag} has no effect: {reason}");
    }
    let sampling = sampling(&arguments)?;
    let model = super::model_file(&arguments.model)?;
    let template = super::template(arguments.engine.chat_template_file.as_deref())?;
    // One conversation: a slot for each of several requests would only cost memory.
    let engine = relight_protocol::EngineConfig {
        slots: 1,
        ..arguments.engine.config(model, template)
    };
    let interactive = std::io::stdin().is_terminal();
    let prompt = match arguments.prompt {
        Some(prompt) if interactive => Some(prompt),
        Some(prompt) => Some(join(prompt, piped()?)),
        None if interactive => None,
        None => Some(piped()?),
    };
    let options = RunOptions {
        engine,
        sampling,
        max_tokens: arguments.max_tokens,
        system: arguments.system,
        prompt,
    };
    let mut lines = std::io::stdin().lock();
    conversation::run(&options, Some(&mut lines), &mut std::io::stdout().lock())
}

/// What was piped in, as far as a prompt may be long.
fn piped() -> Result<String> {
    let limit = limits::PROMPT_BYTES_MAX as u64;
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(limit + 1)
        .read_to_string(&mut text)
        .context("cannot read standard input")?;
    ensure!(
        text.len() as u64 <= limit,
        "standard input is above the limit of {limit} bytes"
    );
    Ok(text)
}

/// A question on the command line about a text on standard input.
fn join(prompt: String, text: String) -> String {
    if text.trim().is_empty() {
        prompt
    } else {
        format!("{prompt}\n\n{text}")
    }
}

fn sampling(arguments: &RunArguments) -> Result<Sampling> {
    ensure!(
        (0.0..=100.0).contains(&arguments.temp),
        "--temp must be between 0 and 100"
    );
    ensure!(
        arguments.top_p > 0.0 && arguments.top_p <= 1.0,
        "--top-p must be above 0 and at most 1"
    );
    ensure!(
        (0.0..=1.0).contains(&arguments.min_p),
        "--min-p must be between 0 and 1"
    );
    ensure!(
        arguments.top_k <= limits::TOP_K_MAX,
        "--top-k must be at most {}",
        limits::TOP_K_MAX
    );
    ensure!(
        arguments.repeat_penalty > 0.0 && arguments.repeat_penalty <= 100.0,
        "--repeat-penalty must be above 0 and at most 100"
    );
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    Ok(Sampling {
        temperature: arguments.temp,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        min_p: arguments.min_p,
        repetition_penalty: arguments.repeat_penalty,
        seed,
        ..Sampling::default()
    })
}

fn random_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot draw a seed; give one with --seed")?;
    Ok(u64::from_le_bytes(bytes))
}
