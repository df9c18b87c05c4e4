//! Prefill and decode rates: how many tokens of a prompt, and how many one after the other,
//! a second of this machine computes.

mod answer;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use relight_engine::arena::ArenaFiles;
use relight_engine::backend::{Backend, Batch, Row};
use relight_engine::load;
use relight_protocol::EngineConfig;
use relight_protocol::limits::PAGE_TOKENS;

use crate::output::Output;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Tokens of the prompt; 0 skips it.
    pub(crate) prompt_tokens: u32,
    /// Tokens made one at a time in an empty context; 0 skips it.
    pub(crate) answer_tokens: u32,
    /// Whether to measure whole answers too, with and without a supervisor.
    pub(crate) supervised: bool,
    /// Runs that count, after one that does not.
    pub(crate) repetitions: u32,
}

/// Times of one kind of work.
struct Measurement {
    name: String,
    tokens: u32,
    times: Vec<Duration>,
}

/// Measures on an engine of its own in this process and prints a table.
///
/// # Errors
/// If the model cannot be loaded, the context is too short, or a step fails.
pub(crate) fn run(config: &EngineConfig, plan: Plan, output: Output) -> Result<()> {
    let config = EngineConfig {
        slots: 1,
        ..config.clone()
    };
    let mut loaded = load::load(&config, ArenaFiles::default(), &mut |_done, _total| {})?;
    let longest = plan.prompt_tokens.max(plan.answer_tokens);
    let context = loaded.card.context_tokens;
    ensure!(
        longest <= context,
        "{longest} tokens do not fit the context of {context}"
    );
    let chunk = usize::try_from(config.batch_tokens).context("a batch beyond this machine")?;
    let kinds = [
        ("prefill", plan.prompt_tokens, chunk.max(1)),
        ("decode", plan.answer_tokens, 1),
    ];
    let mut measurements = Vec::new();
    for (name, tokens, chunk) in kinds.into_iter().filter(|(_, tokens, _)| *tokens > 0) {
        let mut times = Vec::new();
        for repetition in 0..=plan.repetitions {
            let time = compute(&mut loaded.backend, tokens, chunk)?;
            // The first run finds cold caches and sleeping threads.
            if repetition > 0 {
                times.push(time);
            }
        }
        measurements.push(Measurement {
            name: format!("{name} {tokens}"),
            tokens,
            times,
        });
    }
    if plan.supervised && plan.answer_tokens > 1 {
        drop(loaded.backend);
        let times = answer::measure(&config, plan.answer_tokens, plan.repetitions)?;
        for (around, times) in ["in one process", "supervised"].into_iter().zip(times) {
            measurements.push(Measurement {
                name: format!("answer {} {around}", plan.answer_tokens),
                // The clock starts with the first.
                tokens: plan.answer_tokens - 1,
                times,
            });
        }
    }
    print(&loaded.card, &measurements, output)
}

/// Time to compute `tokens` tokens from an empty context, `chunk` at a time, with logits for
/// the last of each chunk.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn compute(backend: &mut impl Backend, tokens: u32, chunk: usize) -> Result<Duration> {
    let page_tokens = u32::try_from(PAGE_TOKENS)?;
    let table: Vec<u32> = (0..tokens.div_ceil(page_tokens)).collect();
    let vocabulary = u32::try_from(backend.vocabulary())?;
    // Any ids do: the arithmetic does not depend on them.
    let rows: Vec<Row> = (0..tokens)
        .map(|position| Row {
            token: position.wrapping_mul(7919) % vocabulary,
            position,
            sequence: 0,
            logits: false,
        })
        .collect();
    let mut logits = Vec::new();
    let start = Instant::now();
    for rows in rows.chunks(chunk) {
        let mut rows = rows.to_vec();
        if let Some(last) = rows.last_mut() {
            last.logits = true;
        }
        backend.forward(
            &Batch {
                rows: &rows,
                sequences: &[&table],
            },
            &mut logits,
        )?;
    }
    Ok(start.elapsed())
}

fn print(
    card: &relight_protocol::ModelCard,
    measurements: &[Measurement],
    output: Output,
) -> Result<()> {
    let rate = |tokens: u32, time: Duration| f64::from(tokens) / time.as_secs_f64();
    let mut rows = Vec::new();
    for Measurement {
        name,
        tokens,
        times,
    } in measurements
    {
        let mut rates: Vec<f64> = times.iter().map(|time| rate(*tokens, *time)).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied().unwrap_or_default();
        let least = rates.first().copied().unwrap_or_default();
        let most = rates.last().copied().unwrap_or_default();
        rows.push((name, median, least, most));
    }
    if output.json {
        let results: Vec<serde_json::Value> = rows
            .iter()
            .map(|(name, median, least, most)| {
                serde_json::json!({ "test": name, "median": median, "min": least, "max": most })
            })
            .collect();
        output.value(&serde_json::json!({
            "model": card.name,
            "quantization": card.quantization,
            "kernels": card.kernels,
            "threads": card.threads,
            "tokens_per_second": results,
        }))?;
        return Ok(());
    }
    output.line(&format!(
        "{} {}, {}, {} threads",
        card.name, card.quantization, card.kernels, card.threads
    ))?;
    output.line("test                         tokens/s   least    most")?;
    for (name, median, least, most) in rows {
        output.line(&format!("{name:<27} {median:9.1} {least:7.1} {most:7.1}"))?;
    }
    Ok(())
}
