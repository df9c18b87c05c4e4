//! The answer to one HTTP request while it is being generated: the streams of all its
//! prompts merged into one, with choices numbered through and usage added up.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use relight_protocol::{ChoiceFinished, Delta, Fault, FinishReason, Request, Usage};
use relight_supervisor::{RequestFailure, StreamEvent};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use crate::metrics::Metrics;
use crate::service::{EventStream, Service};

/// What happened next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Progress {
    /// A prompt was taken; its choices begin with this text if an echo was asked for.
    Accepted {
        choices: std::ops::Range<usize>,
        echo: Option<String>,
    },
    Delta {
        choice: usize,
        delta: Delta,
    },
    ChoiceFinished {
        choice: usize,
        finished: ChoiceFinished,
    },
    /// All choices of all prompts are complete. The last event.
    Finished(Usage),
    /// The request failed as a whole. The last event.
    Failed(RequestFailure),
}

/// What is known of one choice.
#[derive(Clone, Debug, Default)]
struct ChoiceRecord {
    text_chars: usize,
    token_count: u64,
    reason: Option<FinishReason>,
    last_token: Option<Instant>,
}

/// Which streams to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    AtAll,
    AtUnaccepted,
}

/// A request being answered. Dropping it cancels what is left of it.
pub(crate) struct Generation {
    /// One per prompt, `None` once it has ended.
    streams: Vec<Option<Box<dyn EventStream>>>,
    /// Prompts that are not accepted yet.
    unaccepted: Vec<bool>,
    /// Choices per prompt.
    choices: usize,
    /// Where the next look for events begins, so that no stream starves another.
    turn: usize,
    /// Read while waiting for the status of the answer, and not yet passed on.
    early: VecDeque<Progress>,
    records: Vec<ChoiceRecord>,
    usage: Usage,
    ended: bool,
    arrived: Instant,
    metrics: Arc<Metrics>,
}

impl Generation {
    /// Submits one request per prompt, all with the same number of choices.
    ///
    /// # Errors
    /// The first refusal; what was submitted before it is cancelled.
    pub(crate) async fn start(
        service: &dyn Service,
        requests: Vec<Request>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RequestFailure> {
        let arrived = Instant::now();
        let choices = requests.first().map_or(1, |first| first.choices);
        let mut streams = Vec::with_capacity(requests.len());
        for request in requests {
            streams.push(Some(service.submit(request).await?));
        }
        let choices = usize::from(choices);
        let count = streams.len().saturating_mul(choices);
        Ok(Self {
            unaccepted: vec![true; streams.len()],
            streams,
            choices,
            turn: 0,
            early: VecDeque::new(),
            records: vec![ChoiceRecord::default(); count],
            usage: Usage::default(),
            ended: false,
            arrived,
            metrics,
        })
    }

    /// Waits until every prompt was accepted, then for at most `wait` for anything more, so
    /// that most failures come before the headers. True if there was more.
    ///
    /// # Errors
    /// If the request failed by then.
    pub(crate) async fn settle(&mut self, wait: Duration) -> Result<bool, RequestFailure> {
        // Accepted prompts keep what they generate meanwhile in the bounded buffers of their
        // streams.
        while self.unaccepted.contains(&true) {
            match poll_fn(|cx| self.poll_streams(cx, Look::AtUnaccepted)).await {
                Progress::Failed(failure) => return Err(failure),
                progress => self.early.push_back(progress),
            }
        }
        if self.has_begun() {
            return Ok(true);
        }
        match timeout(wait, poll_fn(|cx| self.poll_streams(cx, Look::AtAll))).await {
            Ok(Progress::Failed(failure)) => Err(failure),
            Ok(progress) => {
                self.early.push_back(progress);
                Ok(true)
            }
            Err(_elapsed) => Ok(false),
        }
    }

    fn has_begun(&self) -> bool {
        let is_content = |progress: &Progress| !matches!(progress, Progress::Accepted { .. });
        self.early.iter().any(is_content)
    }

    pub(crate) async fn next(&mut self) -> Progress {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next thing that happened. Not to be called after the last event.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Progress> {
        match self.early.pop_front() {
            Some(progress) => Poll::Ready(progress),
            None => self.poll_streams(cx, Look::AtAll),
        }
    }

    fn poll_streams(&mut self, cx: &mut Context<'_>, look: Look) -> Poll<Progress> {
        let (count, turn) = (self.streams.len(), self.turn);
        for step in 0..count {
            let prompt = turn.saturating_add(step) % count;
            let is_accepted = self.unaccepted.get(prompt) == Some(&false);
            if look == Look::AtUnaccepted && is_accepted {
                continue;
            }
            let Some(Some(stream)) = self.streams.get_mut(prompt) else {
                continue;
            };
            let Poll::Ready(event) = stream.poll_next(cx) else {
                continue;
            };
            self.turn = prompt.saturating_add(1);
            let event = self.checked(prompt, event);
            // A prompt that ends before others has nothing to say.
            if let Some(progress) = self.note(prompt, event) {
                return Poll::Ready(progress);
            }
        }
        Poll::Pending
    }

    /// The event, or a failure in place of one that breaks the service's promise: the first
    /// is `Accepted`, and an end without a last event is never a success.
    fn checked(&mut self, prompt: usize, event: Option<StreamEvent>) -> StreamEvent {
        let unaccepted = self.unaccepted.get_mut(prompt);
        let is_first = unaccepted.is_some_and(std::mem::take);
        let broken = StreamEvent::Failed(Fault::EngineUnavailable.into());
        match event {
            Some(StreamEvent::Failed(failure)) => StreamEvent::Failed(failure),
            Some(event) if is_first == matches!(event, StreamEvent::Accepted { .. }) => event,
            Some(_) | None => {
                tracing::error!(prompt, "a stream of events broke its promise");
                broken
            }
        }
    }

    fn note(&mut self, prompt: usize, event: StreamEvent) -> Option<Progress> {
        let first = prompt.saturating_mul(self.choices);
        match event {
            StreamEvent::Accepted { prompt_text, .. } => Some(Progress::Accepted {
                choices: first..first.saturating_add(self.choices),
                echo: prompt_text,
            }),
            StreamEvent::Delta(delta) => {
                let choice = first.saturating_add(usize::from(delta.choice.0));
                self.note_token(choice, &delta.text);
                Some(Progress::Delta { choice, delta })
            }
            StreamEvent::ChoiceFinished(finished) => {
                let choice = first.saturating_add(usize::from(finished.choice.0));
                if let Some(record) = self.records.get_mut(choice) {
                    record.text_chars += finished.text.chars().count();
                    record.token_count = u64::from(finished.token_count);
                    record.reason = Some(finished.reason);
                }
                Some(Progress::ChoiceFinished { choice, finished })
            }
            StreamEvent::Finished(usage) => self.note_finished(prompt, usage),
            StreamEvent::Failed(failure) => {
                self.streams.clear();
                self.ended = true;
                Some(Progress::Failed(failure))
            }
        }
    }

    fn note_token(&mut self, choice: usize, text: &str) {
        let now = Instant::now();
        let is_first = self.records.iter().all(|record| record.token_count == 0);
        let Some(record) = self.records.get_mut(choice) else {
            return;
        };
        if is_first {
            self.metrics.first_token(now - self.arrived);
        }
        if let Some(last) = record.last_token {
            self.metrics.next_token(now - last);
        }
        record.last_token = Some(now);
        record.token_count += 1;
        record.text_chars += text.chars().count();
    }

    fn note_finished(&mut self, prompt: usize, usage: Usage) -> Option<Progress> {
        if let Some(stream) = self.streams.get_mut(prompt) {
            *stream = None;
        }
        let sum = &mut self.usage;
        sum.prompt_tokens = sum.prompt_tokens.saturating_add(usage.prompt_tokens);
        sum.cached_tokens = sum.cached_tokens.saturating_add(usage.cached_tokens);
        sum.completion_tokens = sum
            .completion_tokens
            .saturating_add(usage.completion_tokens);
        if self.streams.iter().any(Option::is_some) {
            return None;
        }
        self.ended = true;
        self.metrics.finished(Instant::now() - self.arrived);
        Some(Progress::Finished(self.usage))
    }

    /// Number of choices over all prompts.
    pub(crate) fn choice_count(&self) -> usize {
        self.records.len()
    }

    /// Tokens generated so far.
    pub(crate) fn token_count(&self) -> u64 {
        self.records.iter().map(|record| record.token_count).sum()
    }

    /// How far the answer has come, for the error that cuts it short. `texts` are the
    /// choices' texts if the client has not received them.
    pub(crate) fn partial(&self, texts: Option<&[String]>) -> Value {
        let choice = |(index, record): (usize, &ChoiceRecord)| {
            let mut choice = Map::new();
            choice.insert("index".to_owned(), index.into());
            choice.insert("text_chars".to_owned(), record.text_chars.into());
            let reason = record.reason.map(finish_word);
            choice.insert("finish_reason".to_owned(), reason.into());
            if let Some(text) = texts.and_then(|texts| texts.get(index)) {
                choice.insert("text".to_owned(), text.as_str().into());
            }
            Value::Object(choice)
        };
        let choices: Vec<Value> = self.records.iter().enumerate().map(choice).collect();
        json!({ "completion_tokens": self.token_count(), "choices": choices })
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.ended {
            let tokens = self.token_count();
            tracing::info!(tokens, "the client left before its answer was complete");
        }
    }
}

/// OpenAI's word for why a choice ended.
pub(crate) fn finish_word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}
