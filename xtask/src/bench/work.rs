//! The work that is measured, piece by piece: what each server is started for, what it is
//! asked, and which quantities come of it.

use anyhow::{Result, bail, ensure};
use serde_json::json;

use super::busy::Neighbour;
use super::model::{Family, Model};
use super::peers::{Engine, Setup};
use super::samples::Metrics;
use super::text;
use crate::load::{self, Completion, Level, Outcome};
use crate::server::Server;

/// Prompts of a run of streams, and their outputs.
pub(super) const STREAM_INPUT: usize = 200;
pub(super) const STREAM_OUTPUT: u64 = 64;
const SHARED_CLIENTS: usize = 16;
const SHARED_WORDS: usize = 1000;
const SHARED_OWN_WORDS: usize = 30;
const SHARED_OUTPUT: u64 = 32;
/// Words of the first turn of a conversation, and of the second.
const TURN_WORDS: usize = 4000;
const NEXT_WORDS: usize = 30;
const TURN_OUTPUT: u64 = 32;
/// Requests that run at once while others queue.
const QUEUE_SLOTS: usize = 32;
/// Tokens of context where memory is compared.
const MEMORY_CONTEXT: usize = 8192;
const SPECULATION_OUTPUT: u64 = 128;
const WARM_UP_OUTPUT: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// One stream behind so many tokens.
    Decode(usize),
    /// One prompt of so many tokens.
    Prefill(usize),
    /// So many requests at once.
    Streams(usize),
    /// Requests at once whose prompts begin alike.
    Shared,
    /// A conversation's second turn.
    Turn,
    /// One stream beside a neighbour that keeps a processor busy.
    Busy,
    /// Text that repeats itself and text that does not, by so many streams at once.
    Speculation(usize),
    /// From nothing to the first answer, and the memory of it.
    Start,
    /// So many requests, most of which wait.
    Queue(usize),
}

pub(super) const CONTEXTS: [usize; 5] = [0, 1000, 2000, 4000, 8000];
pub(super) const PROMPTS: [usize; 2] = [512, 2000];
pub(super) const CLIENTS: [usize; 4] = [4, 8, 16, 32];
pub(super) const SPECULATORS: [usize; 2] = [1, 4];
pub(super) const QUEUES: [usize; 4] = [32, 64, 128, 256];

impl Work {
    pub(super) fn all() -> Vec<Self> {
        let mut all: Vec<Self> = CONTEXTS.into_iter().map(Self::Decode).collect();
        all.extend(PROMPTS.into_iter().map(Self::Prefill));
        all.extend(CLIENTS.into_iter().map(Self::Streams));
        all.extend([Self::Shared, Self::Turn, Self::Busy, Self::Start]);
        all.extend(SPECULATORS.into_iter().map(Self::Speculation));
        all.extend(QUEUES.into_iter().map(Self::Queue));
        all
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Decode(context) => format!("decode-{context}"),
            Self::Prefill(tokens) => format!("prefill-{tokens}"),
            Self::Streams(clients) => format!("streams-{clients}"),
            Self::Shared => "shared".to_owned(),
            Self::Turn => "turn".to_owned(),
            Self::Busy => "busy".to_owned(),
            Self::Speculation(streams) => format!("speculation-{streams}"),
            Self::Start => "start".to_owned(),
            Self::Queue(requests) => format!("queue-{requests}"),
        }
    }

    /// Whether `--only` names it: whole, or the part before the number.
    pub(super) fn is_called(self, name: &str) -> bool {
        let own = self.name();
        own == name || own.split('-').next() == Some(name)
    }

    /// Whether the table has it for such a model; large ones take minutes for a prompt.
    pub(super) fn suits(self, family: Family) -> bool {
        match self {
            Self::Decode(0) | Self::Prefill(_) | Self::Start => true,
            Self::Streams(8) => family != Family::EightB,
            _ => !family.is_large(),
        }
    }

    pub(super) fn engines(self) -> &'static [Engine] {
        match self {
            Self::Speculation(_) => &[Engine::Relight, Engine::Speculating],
            Self::Queue(_) => &[Engine::Relight],
            _ => &[Engine::Relight, Engine::Llama, Engine::Ik],
        }
    }

    pub(super) fn setup(self) -> Setup {
        let (clients, context) = match self {
            Self::Decode(context) => (1, (context + 192).next_multiple_of(256)),
            Self::Prefill(tokens) => (1, (tokens + 16).next_multiple_of(256)),
            Self::Streams(clients) => (clients, 512),
            Self::Shared => (SHARED_CLIENTS, 1280),
            Self::Turn => (1, 4608),
            Self::Busy => (1, 512),
            Self::Speculation(streams) => (streams, 2048),
            Self::Start => (1, MEMORY_CONTEXT),
            Self::Queue(_) => (QUEUE_SLOTS, 512),
        };
        Setup { clients, context }
    }

    /// Whether others' use of the machine can be told from our own.
    pub(super) fn is_quiet(self) -> bool {
        self != Self::Busy
    }

    /// Once per server, before anything counts: sleeping threads, cold caches, and for
    /// decoding the tokens before.
    pub(super) fn warm_up(self, server: &Server) -> Result<()> {
        let prompt = match self {
            Self::Decode(context) => load::words(context.max(1), context as u64),
            _ => "time".to_owned(),
        };
        load::complete(server.client, &prompt, WARM_UP_OUTPUT).map(|_completion| ())
    }

    /// Measures once; prompts follow from `seed`, which no server has seen before.
    pub(super) fn measure(self, server: &Server, model: &Model, seed: u64) -> Result<Metrics> {
        match self {
            Self::Decode(context) => decode(server, model, context),
            Self::Prefill(tokens) => {
                let completion = load::complete(server.client, &load::words(tokens - 2, seed), 1)?;
                Ok(metrics([
                    ("prefill_tokens_s", completion.prefill_rate()),
                    ("prompt_tokens", completion.prompt_tokens as f64),
                ]))
            }
            Self::Streams(clients) => {
                let outcome = burst(server, clients, (0, STREAM_INPUT), STREAM_OUTPUT, seed)?;
                Ok(of_streams(&outcome))
            }
            Self::Shared => {
                let words = (SHARED_WORDS, SHARED_OWN_WORDS);
                let outcome = burst(server, SHARED_CLIENTS, words, SHARED_OUTPUT, seed)?;
                let mut found = of_streams(&outcome);
                let computed = outcome.completions.iter().map(|one| one.computed_tokens);
                if let Some(computed) = computed.sum::<Option<u64>>() {
                    found.insert("computed_tokens".to_owned(), computed as f64);
                }
                Ok(found)
            }
            Self::Turn => turn(server, seed),
            Self::Busy => busy(server, seed),
            Self::Speculation(streams) => speculation(server, streams),
            Self::Start => start(server, model, seed),
            Self::Queue(requests) => {
                let before = server.memory()? as f64;
                let outcome = burst(server, requests, (0, STREAM_INPUT), STREAM_OUTPUT, seed)?;
                let mut found = of_streams(&outcome);
                found.extend(metrics([
                    ("memory_before_bytes", before),
                    ("memory_bytes", server.memory()? as f64),
                ]));
                Ok(found)
            }
        }
    }
}

fn metrics<const N: usize>(pairs: [(&str, f64); N]) -> Metrics {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The same prompt each time: all of it but its last token is cached.
fn decode(server: &Server, model: &Model, context: usize) -> Result<Metrics> {
    let tokens = if model.family.is_large() || context > 4000 {
        64
    } else {
        128
    };
    let prompt = load::words(context.max(1), context as u64);
    let completion = load::complete(server.client, &prompt, tokens)?;
    Ok(metrics([
        ("decode_tokens_s", completion.decode_rate()),
        ("prompt_tokens", completion.prompt_tokens as f64),
    ]))
}

/// `requests` clients at once, with so many shared and own words each.
fn burst(
    server: &Server,
    requests: usize,
    (shared_words, prompt_words): (usize, usize),
    output_tokens: u64,
    seed: u64,
) -> Result<Outcome> {
    load::run(
        server.client,
        &Level {
            concurrency: requests,
            requests,
            shared_words,
            prompt_words,
            output_tokens,
            seed,
        },
    )
}

fn of_streams(outcome: &Outcome) -> Metrics {
    let waits = outcome.completions.iter().map(Completion::time_to_first);
    let waits = sorted(waits.map(|wait| wait.as_secs_f64()));
    let gaps = outcome
        .completions
        .iter()
        .flat_map(|completion| &completion.gaps);
    let gaps = sorted(gaps.map(std::time::Duration::as_secs_f64));
    let (gap_p50, gap_p99) = (percentile(&gaps, 50), percentile(&gaps, 99));
    metrics([
        ("output_tokens_s", outcome.output_rate()),
        ("total_s", outcome.wall.as_secs_f64()),
        ("first_p50_s", percentile(&waits, 50)),
        ("first_p99_s", percentile(&waits, 99)),
        ("gap_p50_s", gap_p50),
        ("gap_p99_s", gap_p99),
        ("gap_ratio", gap_p99 / gap_p50.max(1e-9)),
    ])
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest value that so many percent of `sorted` do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn turn(server: &Server, seed: u64) -> Result<Metrics> {
    let mut prompt = load::words(TURN_WORDS, seed);
    let cold = load::complete(server.client, &prompt, TURN_OUTPUT)?;
    prompt += &cold.text;
    prompt += " ";
    prompt += &load::words(NEXT_WORDS, seed + 1);
    let second = load::complete(server.client, &prompt, 1)?;
    let seconds = |completion: &Completion| completion.time_to_first().as_secs_f64();
    let mut found = metrics([
        ("cold_first_s", seconds(&cold)),
        ("second_first_s", seconds(&second)),
        ("turn_ratio", seconds(&cold) / seconds(&second)),
    ]);
    if let Some(computed) = second.computed_tokens {
        found.insert("computed_tokens".to_owned(), computed as f64);
    }
    Ok(found)
}

fn busy(server: &Server, seed: u64) -> Result<Metrics> {
    let rate = |seed| -> Result<f64> {
        let completion = load::complete(server.client, &load::words(1, seed), STREAM_OUTPUT)?;
        Ok(completion.decode_rate())
    };
    let quiet = rate(seed)?;
    let processors = std::thread::available_parallelism()?.get();
    let neighbour = Neighbour::start(processors - 1)?;
    load::complete(server.client, "time", WARM_UP_OUTPUT)?;
    let beside = rate(seed)?;
    drop(neighbour);
    Ok(metrics([
        ("decode_tokens_s", quiet),
        ("busy_tokens_s", beside),
        ("busy_ratio", beside / quiet),
    ]))
}

/// Streams of the same prompt, their rates added up. Those that are drawn differ.
fn speculation(server: &Server, streams: usize) -> Result<Metrics> {
    let mut found = Metrics::new();
    for (name, prompt, temperature) in text::SPECULATED {
        let ask = |seed: usize| {
            let body = json!({
                "prompt": prompt,
                "max_tokens": SPECULATION_OUTPUT,
                "temperature": temperature,
                "seed": seed,
                "ignore_eos": true,
                "stream": true,
                "stream_options": { "include_usage": true },
            });
            load::complete_body(server.client, &body, SPECULATION_OUTPUT)
        };
        let completions = at_once(streams, &ask)?;
        let rate: f64 = completions.iter().map(Completion::decode_rate).sum();
        let texts: String = completions.iter().map(|one| one.text.as_str()).collect();
        found.extend(metrics([
            (&format!("{name}_tokens_s"), rate),
            (&format!("{name}_text"), text::fingerprint(&texts)),
        ]));
    }
    Ok(found)
}

/// What `ask` brings to so many clients that ask at the same time, in their order.
fn at_once<T: Send>(clients: usize, ask: &(impl Fn(usize) -> Result<T> + Sync)) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=clients)
            .map(|client| scope.spawn(move || ask(client)))
            .collect();
        let answers = threads.into_iter().map(|thread| {
            let answer = thread.join();
            answer.unwrap_or_else(|_panic| bail!("a client panicked"))
        });
        answers.collect()
    })
}

/// The server was started for this alone.
fn start(server: &Server, model: &Model, seed: u64) -> Result<Metrics> {
    let first = load::complete(server.client, "time", 1)?;
    let start_s = (first.last_text - server.started).as_secs_f64();
    let memory = server.memory()? as f64;
    let words = if model.family == Family::EightB {
        64
    } else {
        2000
    };
    let filled = load::complete(server.client, &load::words(words, seed), 1)?;
    ensure!(filled.prompt_tokens >= words as u64, "the prompt was cut");
    Ok(metrics([
        ("start_s", start_s),
        ("memory_bytes", memory),
        ("filled_memory_bytes", server.memory()? as f64),
    ]))
}

#[cfg(test)]
mod tests;
