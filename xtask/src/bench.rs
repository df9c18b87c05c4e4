//! `cargo xtask bench`: Relight beside llama.cpp's server, on the same machine in the same
//! run, repetitions interleaved so that the machine's moods hit both alike.

mod llama;
mod noise;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use self::noise::Noise;
use crate::load::{self, Level};
use crate::server::Server;
use crate::setup::{self, MODELS, Profile, TestModel};
use crate::terminal::now;
use crate::workspace::Workspace;

/// Both servers get two threads and eight slots.
const THREADS: &str = "2";
const SLOTS: &str = "8";
/// llama.cpp divides this context between its slots; no request here needs more than 1024.
const LLAMA_CONTEXT: &str = "8192";

const DECODE_TOKENS: u64 = 128;
const PREFILL_WORDS: usize = 510;
const STREAMS: Level = Level {
    concurrency: 8,
    requests: 16,
    prompt_words: 200,
    output_tokens: 64,
    seed: 0,
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A llama-server to measure instead of building the pinned one.
    #[arg(long)]
    llama_server: Option<PathBuf>,
    /// A relight to measure instead of building this version.
    #[arg(long)]
    relight: Option<PathBuf>,
    /// Repetitions of every measurement; the median counts.
    #[arg(long, default_value_t = 3)]
    repetitions: u64,
    /// Only the model whose file name contains this.
    #[arg(long)]
    model: Option<String>,
    /// Print the table without writing it into docs/performance.md.
    #[arg(long)]
    dry_run: bool,
}

/// What one start of one server brought.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// From the start of the process to the end of its first completion.
    start_s: f64,
    decode_tokens_s: f64,
    prefill_tokens_s: f64,
    streams_tokens_s: f64,
    /// 99th percentile of pauses within the eight streams.
    pause_p99_s: f64,
    /// After the first completion, and after the eight streams.
    first_memory_bytes: f64,
    memory_bytes: f64,
    /// Share of the machine that neither server nor client used meanwhile.
    others: f64,
}

/// One server on one model.
#[derive(Debug)]
struct Series {
    model: &'static TestModel,
    engine: Engine,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Relight,
    Llama,
}

/// The binaries under measurement.
#[derive(Debug)]
struct Contestants {
    relight: PathBuf,
    llama: PathBuf,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::ensure_models(workspace)?;
    let contestants = Contestants {
        relight: match &options.relight {
            Some(path) => path.clone(),
            None => workspace.build_relight(Profile::Release)?,
        },
        llama: match &options.llama_server {
            Some(path) => path.clone(),
            None => llama::build(workspace)?,
        },
    };
    let mut series = Vec::new();
    for model in &MODELS {
        if options
            .model
            .as_ref()
            .is_none_or(|part| model.file.contains(part.as_str()))
        {
            series.extend(measure_model(
                workspace,
                &contestants,
                model,
                options.repetitions,
            )?);
        }
    }
    report::write(workspace, &series, options.dry_run)
}

fn measure_model(
    workspace: &Workspace,
    contestants: &Contestants,
    model: &'static TestModel,
    repetitions: u64,
) -> Result<[Series; 2]> {
    let path = model.path(workspace);
    // Into the page cache, so that the first start reads no disk either.
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut series = [Engine::Relight, Engine::Llama].map(|engine| Series {
        model,
        engine,
        samples: Vec::new(),
    });
    let log = workspace.cache("logs")?.join("bench-server.log");
    for repetition in 0..repetitions {
        for one in &mut series {
            let sample = measure(contestants.serve(one.engine, &path), &log, repetition)?;
            println!("{} {:?} {repetition}: {sample:?}", model.name, one.engine);
            one.samples.push(sample);
        }
    }
    Ok(series)
}

impl Contestants {
    fn serve(&self, engine: Engine, model: &Path) -> Command {
        match engine {
            Engine::Relight => {
                let mut command = Command::new(&self.relight);
                command
                    .arg("serve")
                    .arg(model)
                    .args(["-t", THREADS, "-np", SLOTS]);
                command
            }
            Engine::Llama => {
                let mut command = Command::new(&self.llama);
                command.arg("-m").arg(model);
                command.args(["-t", THREADS, "-np", SLOTS, "-c", LLAMA_CONTEXT]);
                command
            }
        }
    }
}

fn measure(command: Command, log: &Path, repetition: u64) -> Result<Sample> {
    let server = Server::start(command, log)?;
    let first = load::complete(server.client, "time", 1);
    let first = first.with_context(|| server.last_lines())?;
    let start_s = (first.last_text - server.started).as_secs_f64();
    let first_memory = server.memory()?;
    let noise = Noise::start(server.pid())?;
    let seed = 1_000_000 * (repetition + 1);
    let decode = load::complete(server.client, &load::words(1, seed), DECODE_TOKENS)?;
    let prefill = load::complete(server.client, &load::words(PREFILL_WORDS, seed + 1), 1)?;
    let streams = load::run(
        server.client,
        &Level {
            seed: seed + 2,
            ..STREAMS
        },
    )?;
    let sample = Sample {
        start_s,
        decode_tokens_s: decode.decode_rate(),
        prefill_tokens_s: prefill.prefill_rate(),
        streams_tokens_s: streams.output_rate(),
        pause_p99_s: pause_p99(&streams),
        first_memory_bytes: first_memory as f64,
        memory_bytes: server.memory()? as f64,
        others: noise.others_share(now())?,
    };
    server.stop()?;
    Ok(sample)
}

fn pause_p99(outcome: &load::Outcome) -> f64 {
    let pauses = outcome
        .completions
        .iter()
        .flat_map(|completion| &completion.gaps);
    let mut pauses: Vec<f64> = pauses.map(std::time::Duration::as_secs_f64).collect();
    pauses.sort_by(f64::total_cmp);
    pauses
        .get(pauses.len() * 99 / 100)
        .copied()
        .unwrap_or_default()
}
