//! A closed loop of clients against a server: what they waited, what they got.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::http::{Client, Event, Stream};
use crate::terminal::now;

/// Frequent words, one token each in most vocabularies.
const WORDS: &[&str] = &[
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
];

/// `count` words, other ones for every `seed`, so that no prefix cache can help.
pub(crate) fn words(count: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut text = String::new();
    for _ in 0..count {
        // xorshift64: any seeded sequence will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let index = usize::try_from(state % WORDS.len() as u64).unwrap_or_default();
        text.push_str(WORDS.get(index).copied().unwrap_or_default());
        text.push(' ');
    }
    text
}

/// One completion, streamed to its end.
#[derive(Debug, Clone)]
pub(crate) struct Completion {
    pub(crate) sent: Instant,
    pub(crate) first_text: Instant,
    pub(crate) last_text: Instant,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// Tokens of the prompt that no cache had, if the server says.
    pub(crate) computed_tokens: Option<u64>,
    pub(crate) text: String,
    /// Pauses between two events with text.
    pub(crate) gaps: Vec<Duration>,
}

impl Completion {
    pub(crate) fn time_to_first(&self) -> Duration {
        self.first_text - self.sent
    }

    /// Tokens after the first, per second.
    pub(crate) fn decode_rate(&self) -> f64 {
        let tokens = self.completion_tokens.saturating_sub(1) as f64;
        tokens / (self.last_text - self.first_text).as_secs_f64().max(1e-9)
    }

    pub(crate) fn prefill_rate(&self) -> f64 {
        self.prompt_tokens as f64 / self.time_to_first().as_secs_f64().max(1e-9)
    }
}

/// Greedy completion of `prompt` with exactly `tokens` tokens. Anything but a clean end with
/// the right usage is an error.
pub(crate) fn complete(client: Client, prompt: &str, tokens: u64) -> Result<Completion> {
    let body = json!({
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": true,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    complete_body(client, &body, tokens)
}

/// The completion that `body` asks for, which must have exactly `tokens` tokens.
pub(crate) fn complete_body(client: Client, body: &Value, tokens: u64) -> Result<Completion> {
    let stream = client.stream("/v1/completions", body)?;
    let completion = read_completion(&stream)?;
    ensure!(
        completion.completion_tokens == tokens,
        "usage says {} completion tokens, {tokens} were asked for",
        completion.completion_tokens
    );
    Ok(completion)
}

fn read_completion(stream: &Stream) -> Result<Completion> {
    ensure!(
        stream.status == 200,
        "status {}: {}",
        stream.status,
        stream.body
    );
    let mut progress = Progress::default();
    for event in &stream.events {
        progress.take(event)?;
    }
    progress.finish(stream.sent)
}

/// What the events of a stream have said so far.
#[derive(Debug, Default)]
struct Progress {
    texts: Vec<Instant>,
    text: String,
    is_finished: bool,
    usage: Option<Value>,
    /// llama.cpp's word for the tokens of the prompt that it computed.
    computed: Option<u64>,
    is_done: bool,
}

impl Progress {
    fn take(&mut self, event: &Event) -> Result<()> {
        ensure!(!self.is_done, "an event follows [DONE]: {}", event.data);
        if event.data == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let value: Value = serde_json::from_str(&event.data)
            .with_context(|| format!("no JSON in an event: {}", event.data))?;
        if let Some(error) = value.get("error") {
            bail!("the stream reports an error: {error}");
        }
        if let Some(usage) = value.get("usage").filter(|usage| !usage.is_null()) {
            self.usage = Some(usage.clone());
        }
        let computed = value.pointer("/timings/prompt_n").and_then(Value::as_u64);
        self.computed = computed.or(self.computed);
        let text = value
            .pointer("/choices/0/text")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !text.is_empty() {
            self.texts.push(event.at);
            self.text.push_str(text);
        }
        let finish = value.pointer("/choices/0/finish_reason");
        self.is_finished |= finish.is_some_and(Value::is_string);
        Ok(())
    }

    fn finish(self, sent: Instant) -> Result<Completion> {
        ensure!(
            self.is_done && self.is_finished,
            "the stream ended without finish reason or [DONE]"
        );
        let usage = self.usage.context("no usage was streamed")?;
        let count = |key: &str| {
            usage
                .get(key)
                .and_then(Value::as_u64)
                .with_context(|| format!("no {key} in usage"))
        };
        let (prompt_tokens, completion_tokens) =
            (count("prompt_tokens")?, count("completion_tokens")?);
        ensure!(prompt_tokens > 0, "usage says 0 prompt tokens");
        ensure!(
            count("total_tokens")? == prompt_tokens + completion_tokens,
            "total_tokens is not the sum"
        );
        let cached = usage.pointer("/prompt_tokens_details/cached_tokens");
        let cached = cached.and_then(Value::as_u64);
        let computed = cached.map(|cached| prompt_tokens.saturating_sub(cached));
        let gaps = self
            .texts
            .windows(2)
            .filter_map(|pair| Some(*pair.get(1)? - *pair.first()?));
        Ok(Completion {
            sent,
            first_text: *self.texts.first().context("no text was streamed")?,
            last_text: *self.texts.last().context("no text was streamed")?,
            prompt_tokens,
            completion_tokens,
            computed_tokens: self.computed.or(computed),
            text: self.text,
            gaps: gaps.collect(),
        })
    }
}

/// `concurrency` clients that send `requests` requests between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    pub(crate) concurrency: usize,
    pub(crate) requests: usize,
    /// Words at the start of all prompts, and behind them words of each prompt's own.
    pub(crate) shared_words: usize,
    pub(crate) prompt_words: usize,
    pub(crate) output_tokens: u64,
    pub(crate) seed: u64,
}

/// What a level brought.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) wall: Duration,
    pub(crate) completions: Vec<Completion>,
}

impl Outcome {
    /// Output tokens of all clients per second of the whole run, prefill included.
    pub(crate) fn output_rate(&self) -> f64 {
        let tokens: u64 = self
            .completions
            .iter()
            .map(|completion| completion.completion_tokens)
            .sum();
        tokens as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Runs a level; the first failed request fails it.
pub(crate) fn run(client: Client, level: &Level) -> Result<Outcome> {
    let waiting = Mutex::new((0..level.requests).collect::<Vec<_>>());
    let results = Mutex::new(Vec::new());
    let started = now();
    std::thread::scope(|scope| {
        for _ in 0..level.concurrency {
            scope.spawn(|| work_off(client, level, &waiting, &results));
        }
    });
    let wall = now() - started;
    let results = results
        .into_inner()
        .map_err(|_| anyhow!("a client thread panicked"))?;
    ensure!(
        results.len() == level.requests,
        "{} of {} requests ran",
        results.len(),
        level.requests
    );
    let completions = results.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Outcome { wall, completions })
}

/// One client: takes the next request until none is left.
fn work_off(
    client: Client,
    level: &Level,
    waiting: &Mutex<Vec<usize>>,
    results: &Mutex<Vec<Result<Completion>>>,
) {
    while let Some(request) = waiting.lock().ok().and_then(|mut waiting| waiting.pop()) {
        let mut prompt = words(level.shared_words, level.seed);
        prompt += &words(level.prompt_words, level.seed + 1 + request as u64);
        let result = complete(client, &prompt, level.output_tokens);
        if let Ok(mut results) = results.lock() {
            results.push(result);
        }
    }
}

#[cfg(test)]
mod tests;
