//! `/v1/models`: what is served, in the shapes of OpenAI, vLLM, llama.cpp and Anthropic at
//! once, which do not contradict each other.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use relight_protocol::ModelCard;
use serde_json::{Value, json};

use crate::app::App;
use crate::clock::iso_date;
use crate::failure::{Failure, json_response};
use crate::refusal::Refusal;

/// `GET /v1/models`
pub(crate) fn models(app: &App, request_id: &str) -> Response<Body> {
    let Some(card) = app.service.model_card() else {
        return app.no_model().to_response(request_id, None);
    };
    let name = app.model_name(Some(&card));
    let list = json!({
        "object": "list",
        "data": [model_json(app, &name, &card)],
        "has_more": false,
        "first_id": name,
        "last_id": name,
    });
    json_response(StatusCode::OK, &list)
}

/// `GET /v1/models/{id}`
pub(crate) fn model(app: &App, request_id: &str, id: &str) -> Response<Body> {
    let Some(card) = app.service.model_card() else {
        return app.no_model().to_response(request_id, None);
    };
    if !app.is_served(id, &card) {
        let refusal = Refusal::ModelUnknown {
            name: id.to_owned(),
            served: app.model_name(Some(&card)),
        };
        return Failure::from(refusal).to_response(request_id, None);
    }
    json_response(StatusCode::OK, &model_json(app, id, &card))
}

fn model_json(app: &App, name: &str, card: &ModelCard) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.started,
        "owned_by": "relight",
        "root": card.name,
        "max_model_len": card.context_tokens,
        "status": { "value": "loaded" },
        "meta": {
            "n_ctx": card.context_tokens,
            "n_ctx_train": card.context_tokens_trained,
            "n_vocab": card.vocabulary,
            "n_params": card.parameters,
            "size": card.weights_bytes,
            "architecture": card.architecture,
            "quantization": card.quantization,
            "has_chat_template": card.has_chat_template,
        },
        "type": "model",
        "display_name": card.name,
        "created_at": iso_date(app.started),
    })
}
