//! `relight run`.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use relight_protocol::{EngineConfig, Sampling, limits};

use crate::args::{RunArgs, SamplingArgs};
use crate::conversation::{self, RunOptions};
use crate::front::Engines;
use crate::logs::Logs;
use crate::output::Output;

/// Answers the prompt, standard input, or a conversation.
///
/// # Errors
/// If the model cannot be had or an argument is out of range.
pub(crate) fn run(args: &RunArgs, output: Output) -> anyhow::Result<ExitCode> {
    let logs = Logs::new(args.log, output.json);
    logs.start();
    for reason in args.engine.without_effect() {
        output.note(&format!("no effect: {reason}"));
    }
    let sampling = sampling(&args.sampling)?;
    let model = super::obtain(args.source().as_deref(), args.folder(), output)?;
    // One conversation: slots for others would only cost memory.
    let config = EngineConfig {
        slots: 1,
        ..args.engine.config(&model.path)?
    };
    let options = RunOptions {
        engines: Engines {
            config,
            environment: logs.environment(),
        },
        sampling,
        max_tokens: args.sampling.predict,
        system: args.system.clone(),
        prompt: prompt(args.prompt())?,
        raw: args.raw,
    };
    conversation::run(
        &options,
        &mut std::io::stdin().lock(),
        &mut std::io::stdout().lock(),
    )
}

/// The one prompt to answer: from the command line, from a pipe, or a question from the one
/// about a text from the other. `None` starts a conversation.
fn prompt(question: Option<String>) -> anyhow::Result<Option<String>> {
    if std::io::stdin().is_terminal() {
        return Ok(question);
    }
    let limit = limits::PROMPT_BYTES_MAX as u64;
    let mut text = String::new();
    let mut input = std::io::stdin().lock().take(limit + 1);
    input
        .read_to_string(&mut text)
        .context("cannot read standard input")?;
    ensure!(
        text.len() as u64 <= limit,
        "standard input is above the limit of {limit} bytes"
    );
    Ok(Some(match question {
        Some(question) if text.trim().is_empty() => question,
        Some(question) => format!("{question}\n\n{text}"),
        None => text,
    }))
}

fn sampling(args: &SamplingArgs) -> anyhow::Result<Sampling> {
    ensure!(
        (0.0..=100.0).contains(&args.temp),
        "--temp must be from 0 to 100"
    );
    ensure!(
        args.top_p > 0.0 && args.top_p <= 1.0,
        "--top-p must be above 0 and at most 1"
    );
    ensure!(
        (0.0..=1.0).contains(&args.min_p),
        "--min-p must be from 0 to 1"
    );
    ensure!(
        args.top_k <= limits::TOP_K_MAX,
        "--top-k must be at most {}",
        limits::TOP_K_MAX
    );
    ensure!(
        (0.01..=100.0).contains(&args.repeat_penalty),
        "--repeat-penalty must be from 0.01 to 100"
    );
    let seed = match args.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    Ok(Sampling {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repeat_penalty,
        seed,
        ..Sampling::default()
    })
}

fn random_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot draw a seed; give one with --seed")?;
    Ok(u64::from_le_bytes(bytes))
}
