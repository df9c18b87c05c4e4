//! What probes are told: the supervisor's truth in TabbyAPI's shape, with what happened to
//! the engine beside it.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use relight_protocol::limits::{RETRY_AFTER_S_MAX, RETRY_AFTER_S_MIN};
use relight_supervisor::Health;
use serde_json::{Value, json};

use crate::app::App;
use crate::clock::{iso_date, unix_seconds};
use crate::failure::json_response;

/// `GET /health`: 200 while requests are served, 503 otherwise.
pub(crate) fn health(app: &App) -> Response<Body> {
    let health = app.service.health();
    let body = health_json(
        &health,
        &app.model_name(health.card.as_deref()),
        unix_seconds(),
    );
    with_status(&health, json_response(StatusCode::OK, &body))
}

/// `GET /readyz`: the same verdict in one word.
pub(crate) fn ready(app: &App) -> Response<Body> {
    let health = app.service.health();
    let response = Response::new(Body::from(format!("{}\n", health.status.word())));
    with_status(&health, response)
}

fn with_status(health: &Health, mut response: Response<Body>) -> Response<Body> {
    if !health.status.is_ready() {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let seconds = health
            .retry_after_s
            .clamp(RETRY_AFTER_S_MIN, RETRY_AFTER_S_MAX);
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn health_json(health: &Health, model: &str, now: u64) -> Value {
    let is_ready = health.status.is_ready();
    let is_degraded = health.status == relight_supervisor::Status::Degraded;
    let fault = health.last_fault.as_ref().map(|(description, age)| {
        let time = iso_date(now.saturating_sub(age.as_secs()));
        json!({ "time": time, "description": description })
    });
    // TabbyAPI never clears its list; ours is empty again once all is well.
    let issues = match &fault {
        Some(fault) if !is_ready || is_degraded => vec![fault.clone()],
        None if !is_ready => {
            let description = format!("the model is {}", health.status.word());
            vec![json!({ "time": iso_date(now), "description": description })]
        }
        Some(_) | None => Vec::new(),
    };
    let loading = health.loading.map(|progress| {
        json!({ "done_bytes": progress.done_bytes, "total_bytes": progress.total_bytes })
    });
    json!({
        "status": if is_ready { "healthy" } else { "unhealthy" },
        "issues": issues,
        "degraded": is_degraded,
        "state": health.status.word(),
        "model": model,
        "engine": {
            "pid": health.engine_pid,
            "restarts": health.restarts,
            "recent_faults": health.recent_faults,
            "contained_faults": health.contained_faults,
            "last_token_age_s": health.last_generation_age.map(|age| age.as_secs_f64()),
            "last_fault": fault,
            "loading": loading,
            "kernels": health.card.as_ref().map(|card| card.kernels.as_str()),
            "speculation": health.card.as_ref().map(|card| card.speculation.word()),
            "slots": health.card.as_ref().map(|card| card.slots),
            "pages": health.card.as_ref().map(|card| card.pages),
        },
    })
}

#[cfg(test)]
mod tests;
