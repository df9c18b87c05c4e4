//! The endpoint that takes orders, and the front's own places.

#![expect(clippy::panic, reason = "things go wrong here on purpose")]

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use relight_protocol::injection::{Armed, Blow, Injection, Place};
use relight_protocol::{Prompt, Request};
use serde_json::json;

use crate::app::App;
use crate::failure::json_response;

static ORDERS: Mutex<Vec<Armed>> = Mutex::new(Vec::new());

pub(crate) fn add_route(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.route("/v1/faults/inject", post(inject))
}

async fn inject(State(app): State<Arc<App>>, body: Bytes) -> Response<Body> {
    let injection: Injection = match serde_json::from_slice(&body) {
        Ok(injection) => injection,
        Err(error) => {
            let message = error.to_string();
            let body = json!({ "error": { "message": message } });
            return json_response(StatusCode::BAD_REQUEST, &body);
        }
    };
    let is_taken = if matches!(injection.place, Place::Handler | Place::Stream) {
        let mut orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(Armed::new(injection));
        true
    } else {
        app.service.inject(injection).await
    };
    let status = if is_taken {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    json_response(status, &json!({ "ordered": is_taken }))
}

/// Before these requests are submitted.
pub(crate) fn handler(requests: &[Request]) {
    strike(Place::Handler, |marker| {
        requests.iter().any(|request| match &request.prompt {
            Prompt::Chat(chat) => chat.messages_json.contains(marker),
            Prompt::Text(text) => text.contains(marker),
            Prompt::Tokens(_) => false,
        })
    });
}

/// Before an event of a stream is written. Markers mean nothing here.
pub(crate) fn stream() {
    strike(Place::Stream, |_marker| false);
}

fn strike(place: Place, is_marked: impl Fn(&str) -> bool) {
    let blow = {
        let mut orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
        orders
            .iter_mut()
            .find_map(|armed| armed.pass(place, &is_marked))
    };
    match blow {
        Some(Blow::Panic) => panic!("ordered at {place:?}"),
        Some(blow) => tracing::error!(?blow, ?place, "the front knows no such blow"),
        None => {}
    }
}
