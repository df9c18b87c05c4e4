//! Whole answers, sampled and detokenized, with and without a supervisor around the engine:
//! what the ledger, the pipe, the recorder and the seals of pages cost while nothing fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use relight_engine::arena::ArenaFiles;
use relight_engine::core::{Core, Input};
use relight_engine::cpu::CpuBackend;
use relight_engine::load::{self, Loaded};
use relight_engine::prepare::{PrepareContext, run_job};
use relight_protocol::{
    EngineConfig, Event, Prompt, Request, RequestId, Sampling, StopRules, TokenId,
};
use relight_supervisor::{Bounds, StreamEvent};

use crate::front::{self, Engines};

/// A greedy answer of exactly so many tokens.
fn request(tokens: u32) -> Request {
    Request {
        prompt: Prompt::Tokens(vec![TokenId(1)]),
        choices: 1,
        sampling: Sampling::default(),
        stop: StopRules {
            max_tokens: Some(tokens),
            ignore_eos: true,
            ..StopRules::default()
        },
        logprobs: None,
        echo: false,
    }
}

/// Times from the first to the last token of answers of `tokens` tokens: in one process, and
/// supervised. Both take turns, so that the machine's moods hit them alike; the first of each
/// does not count.
///
/// # Errors
/// If an engine cannot be had, or an answer fails.
pub(super) fn measure(
    config: &EngineConfig,
    tokens: u32,
    repetitions: u32,
) -> Result<[Vec<Duration>; 2]> {
    let runtime = front::runtime()?;
    let engines = Engines {
        config: config.clone(),
        environment: vec![("RELIGHT_LOG".into(), "error".into())],
    };
    let (handle, thread) = front::start(engines, Bounds::default())?;
    runtime.block_on(handle.wait_ready())?;
    let Loaded {
        language,
        backend,
        scheduler,
        card,
    } = load::load(config, ArenaFiles::default(), &mut |_done, _total| {})?;
    let context = PrepareContext {
        language: &language,
        context_tokens: card.context_tokens,
        now_unix_seconds: 0,
    };
    let mut core = Core::new(backend, scheduler, card.fingerprint);
    let mut times = [Vec::new(), Vec::new()];
    for repetition in 0..=repetitions {
        let alone = in_one_process(&mut core, &context, RequestId(repetition.into()), tokens)?;
        let supervised = runtime.block_on(supervised(&handle, tokens))?;
        for (times, time) in times.iter_mut().zip([alone, supervised]) {
            if repetition > 0 {
                times.push(time);
            }
        }
    }
    runtime.block_on(handle.shutdown(Duration::ZERO));
    ensure!(thread.join(), "the supervisor panicked");
    Ok(times)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn in_one_process<'a>(
    core: &mut Core<'a, CpuBackend>,
    context: &PrepareContext<'a>,
    id: RequestId,
    tokens: u32,
) -> Result<Duration> {
    core.handle(Input::Submit {
        id,
        request: Box::new(request(tokens)),
        resume: None,
    });
    for job in core.take_jobs() {
        let result = run_job(context, &job);
        core.handle(Input::Prepared {
            id,
            attempt: job.attempt,
            result,
        });
    }
    let started = now();
    let mut first = None;
    loop {
        if core.step(started.elapsed()).is_err() {
            bail!("a step failed");
        }
        for event in core.take_events() {
            match event {
                Event::Delta(_) => {
                    first.get_or_insert_with(now);
                }
                Event::Finished(_) => {
                    let first: Instant = first.context("an answer without a token")?;
                    return Ok(first.elapsed());
                }
                Event::Rejected(rejected) | Event::Failed(rejected) => bail!(rejected.fault),
                _ => {}
            }
        }
    }
}

async fn supervised(handle: &relight_supervisor::Handle, tokens: u32) -> Result<Duration> {
    let mut stream = handle.submit(request(tokens)).await?;
    let mut first = None;
    while let Some(event) = stream.next().await {
        match event {
            StreamEvent::Delta(_) => {
                first.get_or_insert_with(now);
            }
            StreamEvent::Finished(_) => {
                let first: Instant = first.context("an answer without a token")?;
                return Ok(first.elapsed());
            }
            StreamEvent::Failed(failure) => return Err(failure.into()),
            StreamEvent::Accepted { .. } | StreamEvent::ChoiceFinished(_) => {}
        }
    }
    bail!("an answer without an end")
}
