//! A streamed answer as server-sent events: one event is one piece of the body, lines end
//! in LF, silence is filled with comments, and a failure is an event that no client can
//! take for an end. The `text/event-stream` format is that of the HTML standard.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_core::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep};

use crate::failure::Failure;
use crate::generation::{Generation, Progress};
use crate::injected;
use crate::metrics::Metrics;
use crate::refusal::Refusal;

/// Not `: ping`, which some clients take for the end.
const KEEPALIVE: &[u8] = b": keep-alive\n\n";

/// Turns progress into events of one dialect.
pub(crate) trait EventWriter: Send {
    /// Writes everything but a failure.
    fn write(&mut self, progress: Progress, events: &mut Events);
}

/// Events that are ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct Events {
    ready: VecDeque<Bytes>,
    /// Set when an event could not be written; the stream must not go on as if it had been.
    is_broken: bool,
}

impl Events {
    /// An event with `value` as its data, on one line.
    pub(crate) fn push_json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(json) => self.ready.push_back(format!("data: {json}\n\n").into()),
            Err(error) => {
                tracing::error!(%error, "an event could not be written");
                self.is_broken = true;
            }
        }
    }

    /// The event that ends a success.
    pub(crate) fn push_done(&mut self) {
        self.ready
            .push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    }

    fn push_comment(&mut self) {
        self.ready.push_back(Bytes::from_static(KEEPALIVE));
    }
}

/// The body of a streamed answer. Dropping it cancels the request.
pub(crate) struct EventBody {
    generation: Generation,
    writer: Box<dyn EventWriter>,
    events: Events,
    keepalive: Duration,
    silence: Pin<Box<Sleep>>,
    request_id: String,
    prompt_param: &'static str,
    ended: bool,
    metrics: Arc<Metrics>,
}

/// What a streamed answer needs to know of its request.
#[derive(Clone, Debug)]
pub(crate) struct EventOptions {
    pub(crate) request_id: String,
    pub(crate) prompt_param: &'static str,
    pub(crate) keepalive: Duration,
    /// Begin with a comment because nothing else has come yet.
    pub(crate) begin_with_comment: bool,
}

impl EventBody {
    /// The response whose body this is.
    pub(crate) fn respond(
        generation: Generation,
        writer: Box<dyn EventWriter>,
        options: EventOptions,
        metrics: Arc<Metrics>,
    ) -> Response<Body> {
        let mut events = Events::default();
        if options.begin_with_comment {
            events.push_comment();
        }
        let body = Self {
            generation,
            writer,
            events,
            keepalive: options.keepalive,
            silence: Box::pin(sleep(options.keepalive)),
            request_id: options.request_id,
            prompt_param: options.prompt_param,
            ended: false,
            metrics,
        };
        let mut response = Response::new(Body::from_stream(body));
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
            (header::CACHE_CONTROL, "no-cache"),
            // nginx would collect events otherwise.
            (header::HeaderName::from_static("x-accel-buffering"), "no"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(event) = self.events.ready.pop_front() {
                let deadline = Instant::now() + self.keepalive;
                self.silence.as_mut().reset(deadline);
                return Poll::Ready(Some(event));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.generation.poll_next(cx) {
                Poll::Ready(progress) => self.take(progress),
                Poll::Pending => {
                    if self.silence.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.events.push_comment();
                }
            }
        }
    }

    fn take(&mut self, progress: Progress) {
        injected::stream();
        if let Progress::Failed(failure) = progress {
            tracing::warn!(request_id = self.request_id, %failure, "a stream failed");
            self.fail(&Failure::Failed {
                failure,
                prompt_param: Some(self.prompt_param),
            });
            return;
        }
        self.ended = matches!(progress, Progress::Finished(_));
        self.writer.write(progress, &mut self.events);
        if self.events.is_broken {
            self.events.ready.clear();
            self.fail(&Refusal::HandlerPanicked.into());
        }
    }

    /// Ends the stream with an error: no finish reason, no usage, no `[DONE]`.
    fn fail(&mut self, failure: &Failure) {
        self.ended = true;
        let partial = self.generation.partial(None);
        let error = failure.to_json(&self.request_id, Some(partial));
        self.events.push_json(&error);
    }
}

impl Stream for EventBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Unwind safe: after a panic nothing of the stream is used but its counts.
        match catch_unwind(AssertUnwindSafe(|| self.poll_event(cx))) {
            Ok(event) => event.map(|event| event.map(Ok)),
            Err(_panic) => {
                self.metrics.panics.inc();
                self.events = Events::default();
                self.fail(&Refusal::HandlerPanicked.into());
                let event = self.events.ready.pop_front();
                Poll::Ready(event.map(Ok))
            }
        }
    }
}
