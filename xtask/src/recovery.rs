//! `cargo xtask recovery`: how long a killed engine keeps a conversation waiting, and what the
//! machinery that makes it so costs while nothing fails.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::document;
use crate::load;
use crate::server::{Server, children};
use crate::setup::{self, MODELS, Profile};
use crate::terminal::{output, run};
use crate::workspace::Workspace;

/// Tokens of the conversation when its engine is killed.
const CONVERSATIONS: [usize; 4] = [0, 500, 2000, 8000];
const CONTEXT: &str = "8192";
const THREADS: &str = "2";
/// Tokens of the answer, and those before the kill.
const ANSWER_TOKENS: u64 = 64;
const TOKENS_BEFORE_KILL: usize = 24;
/// The promise: this many decode steps and this much time.
const STEPS_MAX: f64 = 10.0;
const EXTRA_S: f64 = 0.1;
/// Tokens of each run that measures the cost.
const COST_TOKENS: u32 = 128;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Repetitions of every measurement; the median counts.
    #[arg(long, default_value_t = 5)]
    repetitions: u64,
    /// Only what supervision costs, without kills.
    #[arg(long)]
    only_cost: bool,
    /// Print the tables without writing them into docs/performance.md.
    #[arg(long)]
    dry_run: bool,
}

/// One kill.
#[derive(Clone, Copy, Debug)]
struct Kill {
    /// The longest silence that ends after the signal.
    pause_s: f64,
    /// Median pause between the other tokens.
    step_s: f64,
}

impl Kill {
    /// The share of the promised time that was used.
    fn used(self) -> f64 {
        self.pause_s / (STEPS_MAX * self.step_s + EXTRA_S)
    }
}

pub(crate) fn measure(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::ensure_models(workspace)?;
    let relight = workspace.build_relight(Profile::Release)?;
    let [model, _] = &MODELS;
    let path = model.path(workspace);
    let page = workspace.path("docs/performance.md");
    let mut sections = Vec::new();
    if !options.only_cost {
        let log = workspace.cache("logs")?.join("recovery-server.log");
        sections.push((
            "recovery",
            kill_table(&relight, &path, &log, options.repetitions)?,
        ));
    }
    sections.push((
        "supervision",
        cost_table(&relight, &path, options.repetitions)?,
    ));
    for (name, table) in sections {
        let table = format!(
            "{}, medians of {}.\n\n{table}",
            model.file, options.repetitions
        );
        if options.dry_run {
            println!("{table}");
        } else {
            document::replace_section(&page, name, &table)?;
        }
    }
    Ok(())
}

fn kill_table(relight: &Path, model: &Path, log: &Path, repetitions: u64) -> Result<String> {
    let mut table = "| tokens before | decode step (ms) | pause from SIGKILL to the next token (ms) | of the promised time |\n|---:|---:|---:|---:|\n".to_owned();
    for tokens in CONVERSATIONS {
        let mut kills = Vec::new();
        for repetition in 0..repetitions {
            let server = Server::start(serve(relight, model), log)?;
            let seed = 1000 * repetition + tokens as u64;
            let kill = kill_once(&server, tokens, seed).with_context(|| server.last_lines())?;
            println!("{tokens} tokens, {repetition}: {kill:?}");
            kills.push(kill);
            server.stop()?;
        }
        table.push_str(&format!(
            "| {tokens} | {:.1} | {:.0} | {:.2} |\n",
            1e3 * median(kills.iter().map(|kill| kill.step_s)),
            1e3 * median(kills.iter().map(|kill| kill.pause_s)),
            median(kills.iter().map(|kill| kill.used())),
        ));
    }
    Ok(table)
}

fn cost_table(relight: &Path, model: &Path, repetitions: u64) -> Result<String> {
    let mut table = "| threads of the engine | supervised, of the tokens/s in one process | least | most |\n|---:|---:|---:|---:|\n".to_owned();
    for threads in ["1", THREADS] {
        let mut shares = Vec::new();
        for _ in 0..repetitions {
            let rates = rates(relight, model, threads)?;
            println!("{threads} threads: {rates:?}");
            shares.push(rates.supervised / rates.alone);
        }
        table.push_str(&format!(
            "| {threads} | {:.3} | {:.3} | {:.3} |\n",
            median(shares.iter().copied()),
            shares.iter().copied().fold(f64::INFINITY, f64::min),
            shares.iter().copied().fold(0.0, f64::max),
        ));
    }
    Ok(table)
}

fn serve(relight: &Path, model: &Path) -> Command {
    let mut command = Command::new(relight);
    command.arg("serve").arg(model);
    command.args(["-t", THREADS, "-np", "1", "-c", CONTEXT]);
    command
}

/// Kills the engine in the middle of an answer.
fn kill_once(server: &Server, tokens: usize, seed: u64) -> Result<Kill> {
    let engine = children(server.pid());
    let [engine] = engine.as_slice() else {
        anyhow::bail!("the server has {} children", engine.len());
    };
    let body = json!({
        "prompt": load::words(tokens.max(1), seed),
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
        "ignore_eos": true,
        "stream": true,
    });
    let mut arrivals: Vec<Instant> = Vec::new();
    let mut killed = None;
    let status = server.client.follow("/v1/completions", &body, |event| {
        if serde_json::from_str::<Value>(&event.data).is_ok() {
            arrivals.push(event.at);
        }
        if arrivals.len() == TOKENS_BEFORE_KILL && killed.is_none() {
            run(Command::new("kill").args(["-KILL", &engine.to_string()]))?;
            killed = Some(crate::terminal::now());
        }
        Ok(())
    })?;
    ensure!(status == 200, "the server answers {status}");
    let killed = killed.context("the answer was too short to be disturbed")?;
    // Tokens may be on their way when the signal is sent: the pause comes after them.
    let gaps: Vec<Duration> = arrivals
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] => Some(*after - *before),
            _ => None,
        })
        .collect();
    ensure!(
        arrivals.last() > Some(&killed),
        "no token came after the kill"
    );
    let after_kill = arrivals.windows(2).zip(&gaps);
    let after_kill = after_kill.filter(|(pair, _gap)| pair.last() > Some(&killed));
    let pause = after_kill.map(|(_pair, gap)| *gap).max();
    Ok(Kill {
        pause_s: pause.context("only one token came")?.as_secs_f64(),
        step_s: median(gaps.iter().map(Duration::as_secs_f64)),
    })
}

/// Tokens/s of whole answers.
#[derive(Clone, Copy, Debug)]
struct Rates {
    alone: f64,
    supervised: f64,
}

/// `relight bench` once, each kind in turn.
fn rates(relight: &Path, model: &Path, threads: &str) -> Result<Rates> {
    let mut bench = Command::new(relight);
    bench.arg("bench").arg(model);
    let tokens = COST_TOKENS.to_string();
    bench.args(["-t", threads, "-p", "0", "-n", &tokens, "-r", "3"]);
    bench.args(["--supervised", "--json"]);
    let table: Value = serde_json::from_str(&output(&mut bench)?)?;
    let rate = |row: usize| {
        let median = table.pointer(&format!("/tokens_per_second/{row}/median"));
        median
            .and_then(Value::as_f64)
            .context("relight bench names no rate")
    };
    Ok(Rates {
        alone: rate(1)?,
        supervised: rate(2)?,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
