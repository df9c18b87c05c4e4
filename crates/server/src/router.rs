//! Which path goes where, and what happens around every handler.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, MatchedPath, Path, RawQuery, Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{delete, get, post};
use serde_json::json;

use crate::access::{allow_origin, answer_preflight};
use crate::app::App;
use crate::contained::contained;
use crate::failure::{Failure, json_response};
use crate::identifier::{REQUEST_ID, request_id};
use crate::injected;
use crate::metrics::{self, Metrics};
use crate::openai::endpoint::{chat_completions, completions};
use crate::refusal::Refusal;
use crate::{fault_report, health_report, model_list};

/// The name of a request in headers, bodies and logs.
#[derive(Clone, Debug)]
pub(crate) struct RequestName(pub(crate) String);

type Shared = State<Arc<App>>;
type Name = Extension<RequestName>;

/// All endpoints. Those of OpenAI are there with and without `/v1`.
pub(crate) fn router(app: Arc<App>) -> Router {
    let dialect = Router::new()
        .route("/chat/completions", post(chat_completions))
        .route("/completions", post(completions))
        .route("/models", get(models))
        .route("/models/{*id}", get(model))
        .route("/health", get(health));
    let router = Router::new()
        .nest("/v1", dialect.clone())
        .merge(dialect)
        .route("/", get(root))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/version", get(version))
        .route("/v1/faults", get(faults))
        .route("/v1/faults/{id}", get(fault))
        .route("/v1/quarantine", get(quarantine).delete(lift_all))
        .route("/v1/quarantine/{fingerprint}", delete(lift));
    injected::add_route(router)
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// Counts a request once, as 499 if its client leaves before there is an answer.
struct Tally {
    metrics: Arc<Metrics>,
    route: String,
    status: StatusCode,
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.metrics.answered(&self.route, self.status.as_u16());
    }
}

/// Names, admits, contains and counts every request.
async fn around(State(app): Shared, mut request: Request, next: Next) -> Response<Body> {
    let (name, name_header) = request_id(request.headers());
    let asked = request.headers().clone();
    let route = request.extensions().get::<MatchedPath>();
    let mut tally = Tally {
        metrics: Arc::clone(&app.metrics),
        route: route.map_or("other", MatchedPath::as_str).to_owned(),
        status: StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
    };
    let line = format!("{} {}", request.method(), request.uri().path());
    request.extensions_mut().insert(RequestName(name.clone()));
    let mut response = if request.method() == Method::OPTIONS {
        answer_preflight(&asked)
    } else if let Err(refusal) = app.config.api_keys.check(request.uri().path(), &asked) {
        Failure::from(refusal).to_response(&name, None)
    } else if let Ok(response) = contained(next.run(request)).await {
        response
    } else {
        app.metrics.panics.inc();
        tracing::error!(request_id = name, line, "a handler panicked");
        Failure::from(Refusal::HandlerPanicked).to_response(&name, None)
    };
    response.headers_mut().insert(REQUEST_ID, name_header);
    allow_origin(&asked, &mut response);
    tally.status = response.status();
    tracing::debug!(
        request_id = name,
        line,
        status = tally.status.as_u16(),
        "answered"
    );
    response
}

async fn root(State(app): Shared) -> String {
    let card = app.service.model_card();
    let (state, model) = (
        app.service.health().status.word(),
        app.model_name(card.as_deref()),
    );
    format!("Relight serves {model} at /v1 and is {state}; see /health and /metrics\n")
}

async fn health(State(app): Shared) -> Response<Body> {
    health_report::health(&app)
}

async fn ready(State(app): Shared) -> Response<Body> {
    health_report::ready(&app)
}

async fn models(State(app): Shared, Extension(name): Name) -> Response<Body> {
    model_list::models(&app, &name.0)
}

async fn model(
    State(app): Shared,
    Extension(name): Name,
    Path(id): Path<String>,
) -> Response<Body> {
    model_list::model(&app, &name.0, &id)
}

async fn metrics(State(app): Shared) -> Response<Body> {
    let health = app.service.health();
    let model = app.model_name(health.card.as_deref());
    let text = app
        .metrics
        .to_text(&model, &health, &app.service.snapshot());
    let mut response = Response::new(Body::from(text));
    let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

async fn faults(
    State(app): Shared,
    Extension(name): Name,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    fault_report::faults(&app, &name.0, query.as_deref())
}

async fn fault(
    State(app): Shared,
    Extension(name): Name,
    Path(id): Path<String>,
) -> Response<Body> {
    fault_report::fault(&app, &name.0, &id)
}

async fn quarantine(State(app): Shared) -> Response<Body> {
    fault_report::quarantine(&app)
}

async fn lift_all(State(app): Shared, Extension(name): Name) -> Response<Body> {
    fault_report::lift(&app, &name.0, None).await
}

async fn lift(
    State(app): Shared,
    Extension(name): Name,
    Path(fingerprint): Path<String>,
) -> Response<Body> {
    fault_report::lift(&app, &name.0, Some(&fingerprint)).await
}

async fn version() -> Response<Body> {
    let version = env!("CARGO_PKG_VERSION");
    json_response(
        StatusCode::OK,
        &json!({ "version": version, "name": "relight" }),
    )
}

async fn unknown(Extension(name): Name, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    Failure::from(Refusal::EndpointUnknown { path }).to_response(&name.0, None)
}

async fn not_allowed(Extension(name): Name, request: Request) -> Response<Body> {
    let refusal = Refusal::MethodNotAllowed {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
    };
    Failure::from(refusal).to_response(&name.0, None)
}
