//! The two generating endpoints of the dialect.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, Response, header};
use relight_protocol::Fault;
use relight_supervisor::RequestFailure;

use super::answer::{Answer, Head};
use super::chat::chat_call;
use super::chat_writer::{ChatWriter, chat_body};
use super::completion::completion_call;
use super::completion_writer::{CompletionWriter, completion_body};
use super::{Call, Reply};
use crate::app::App;
use crate::event_body::{EventBody, EventOptions, EventWriter};
use crate::failure::Failure;
use crate::generation::{Generation, Progress};
use crate::identifier::random_bits;
use crate::injected;
use crate::refusal::Refusal;
use crate::router::RequestName;

/// Which of the two endpoints was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Chat,
    Completion,
}

impl Endpoint {
    fn parse(self, body: &[u8]) -> Result<Call, Refusal> {
        match self {
            Self::Chat => chat_call(body, random_bits),
            Self::Completion => completion_call(body, random_bits),
        }
    }

    fn prompt_param(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completion => "prompt",
        }
    }

    fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Completion => "cmpl",
        }
    }
}

/// `POST /v1/chat/completions`
pub(crate) async fn chat_completions(
    State(app): State<Arc<App>>,
    Extension(name): Extension<RequestName>,
    request: Request,
) -> Response<Body> {
    respond(&app, Endpoint::Chat, name, request).await
}

/// `POST /v1/completions`
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(name): Extension<RequestName>,
    request: Request,
) -> Response<Body> {
    respond(&app, Endpoint::Completion, name, request).await
}

async fn respond(
    app: &Arc<App>,
    endpoint: Endpoint,
    RequestName(request_id): RequestName,
    request: Request,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = match app.bodies.read(&app.config, &head.headers, body).await {
        Ok(body) => body.parse(move |body| endpoint.parse(body)).await,
        Err(refusal) => Err(refusal),
    };
    let call = match call {
        Ok(call) => call,
        Err(refusal) => return Failure::from(refusal).to_response(&request_id, None),
    };
    injected::handler(&call.requests);
    let top_max = call.requests.first().and_then(|request| request.logprobs);
    let exchange = Exchange {
        app,
        endpoint,
        request_id: &request_id,
        reply: call.reply,
        top_max: usize::from(top_max.unwrap_or(0)),
    };
    let metrics = Arc::clone(&app.metrics);
    let started = Generation::start(app.service.as_ref(), call.requests, metrics).await;
    match started {
        Ok(generation) if exchange.reply.stream => exchange.stream(generation).await,
        Ok(generation) => exchange.collect(generation).await,
        Err(failure) => exchange.fail(failure, None),
    }
}

/// One request that an engine is working on.
struct Exchange<'a> {
    app: &'a Arc<App>,
    endpoint: Endpoint,
    request_id: &'a str,
    reply: Reply,
    top_max: usize,
}

impl Exchange<'_> {
    async fn stream(self, mut generation: Generation) -> Response<Body> {
        let wait = self.app.config.first_token_wait;
        let has_begun = match generation.settle(wait).await {
            Ok(has_begun) => has_begun,
            Err(failure) => {
                let partial = (generation.token_count() > 0).then(|| generation.partial(None));
                return self.fail(failure, partial);
            }
        };
        let writer = self.writer(generation.choice_count());
        let options = EventOptions {
            request_id: self.request_id.to_owned(),
            prompt_param: self.endpoint.prompt_param(),
            keepalive: self.app.config.sse_keepalive,
            begin_with_comment: !has_begun,
        };
        EventBody::respond(generation, writer, options, Arc::clone(&self.app.metrics))
    }

    async fn collect(self, mut generation: Generation) -> Response<Body> {
        let mut answer = Answer::new(generation.choice_count());
        loop {
            match generation.next().await {
                Progress::Failed(failure) => {
                    let texts = answer.into_texts();
                    let partial =
                        (generation.token_count() > 0).then(|| generation.partial(Some(&texts)));
                    return self.fail(failure, partial);
                }
                progress @ Progress::Finished(_) => {
                    answer.push(progress);
                    return self.body(&answer);
                }
                progress @ (Progress::Accepted { .. }
                | Progress::Delta { .. }
                | Progress::ChoiceFinished { .. }) => answer.push(progress),
            }
        }
    }

    /// The head of the answer; by now there is a model, or there would be nothing to answer.
    fn head(&self) -> Head {
        let card = self.app.service.model_card();
        let model = self.app.model_name(card.as_deref());
        if let (Some(asked), Some(card)) = (&self.reply.model, card.as_deref()) {
            self.app.warn_of_name(asked, card);
        }
        Head::new(self.endpoint.id_prefix(), model, card.as_deref())
    }

    fn writer(&self, choice_count: usize) -> Box<dyn EventWriter> {
        let (head, top_max) = (self.head(), self.top_max);
        let include_usage = self.reply.include_usage;
        match self.endpoint {
            Endpoint::Chat => Box::new(ChatWriter::new(head, choice_count, top_max, include_usage)),
            Endpoint::Completion => Box::new(CompletionWriter::new(
                head,
                choice_count,
                top_max,
                include_usage,
            )),
        }
    }

    fn body(&self, answer: &Answer) -> Response<Body> {
        let head = self.head();
        let json = match self.endpoint {
            Endpoint::Chat => chat_body(&head, answer, self.top_max),
            Endpoint::Completion => completion_body(&head, answer, self.top_max),
        };
        match json {
            Ok(json) => {
                let mut response = Response::new(Body::from(json));
                let content_type = HeaderValue::from_static("application/json");
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, content_type);
                response
            }
            Err(error) => {
                tracing::error!(%error, "an answer could not be written");
                Failure::from(Refusal::HandlerPanicked).to_response(self.request_id, None)
            }
        }
    }

    fn fail(&self, failure: RequestFailure, partial: Option<serde_json::Value>) -> Response<Body> {
        let failure = if failure == Fault::EngineUnavailable.into() {
            self.app.no_model()
        } else {
            let prompt_param = Some(self.endpoint.prompt_param());
            Failure::Failed {
                failure,
                prompt_param,
            }
        };
        tracing::info!(request_id = self.request_id, %failure, "a request failed");
        failure.to_response(self.request_id, partial)
    }
}
