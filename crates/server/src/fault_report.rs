//! What operators are told of faults: the records, and who is kept out because of them.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use relight_supervisor::{FaultId, FaultRecord, QuarantinedRequest};
use serde_json::{Value, json};

use crate::app::App;
use crate::clock::iso_date;
use crate::failure::{Failure, json_response};
use crate::refusal::Refusal;

/// `GET /v1/faults?after=N`: the records that are kept, oldest first, from the one after `N`.
pub(crate) fn faults(app: &App, request_id: &str, query: Option<&str>) -> Response<Body> {
    let after = query.and_then(|query| query.strip_prefix("after="));
    let after: u64 = match after.map_or(Ok(0), str::parse) {
        Ok(after) => after,
        Err(_no_number) => {
            let refusal = Refusal::Invalid {
                param: Some("after".to_owned()),
                message: "must be the number of a fault".to_owned(),
            };
            return Failure::from(refusal).to_response(request_id, None);
        }
    };
    let records = app.service.faults();
    let data = records.iter().filter(|record| record.id.0 > after);
    let data: Vec<Value> = data.map(|record| fault_json(record)).collect();
    json_response(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// `GET /v1/faults/{id}`
pub(crate) fn fault(app: &App, request_id: &str, id: &str) -> Response<Body> {
    let records = app.service.faults();
    let wanted = id.parse::<FaultId>().ok();
    let is_wanted = |record: &&Arc<FaultRecord>| Some(record.id) == wanted;
    match records.iter().find(is_wanted) {
        Some(record) => json_response(StatusCode::OK, &fault_json(record)),
        None => unknown(request_id, &format!("/v1/faults/{id}")),
    }
}

/// `GET /v1/quarantine`: requests that are refused now.
pub(crate) fn quarantine(app: &App) -> Response<Body> {
    let requests = app.service.quarantined();
    let data: Vec<Value> = requests.iter().map(quarantined_json).collect();
    json_response(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// `DELETE /v1/quarantine` and `DELETE /v1/quarantine/{fingerprint}`
pub(crate) async fn lift(app: &App, request_id: &str, fingerprint: Option<&str>) -> Response<Body> {
    let parsed = fingerprint.map(|text| u64::from_str_radix(text, 16));
    let lifted = match parsed.transpose() {
        Ok(fingerprint) => app.service.lift(fingerprint).await,
        Err(_no_fingerprint) => 0,
    };
    match fingerprint {
        Some(fingerprint) if lifted == 0 => {
            unknown(request_id, &format!("/v1/quarantine/{fingerprint}"))
        }
        _ => json_response(StatusCode::OK, &json!({ "lifted": lifted })),
    }
}

fn unknown(request_id: &str, path: &str) -> Response<Body> {
    let refusal = Refusal::EndpointUnknown {
        path: path.to_owned(),
    };
    Failure::from(refusal).to_response(request_id, None)
}

fn fault_json(record: &FaultRecord) -> Value {
    let suspects: Vec<String> = record.suspects.iter().map(ToString::to_string).collect();
    json!({
        "id": record.id.to_string(),
        "object": "fault",
        "number": record.id.0,
        "time": iso_date(record.unix_ms / 1000),
        "kind": record.kind.word(),
        "cause": record.cause,
        "message": record.description,
        "engine": record.engine,
        "phase": record.phase,
        "suspects": suspects,
        "is_over": record.is_over,
        "timeline": {
            "contained_ms": record.timeline.contained_ms,
            "engine_up_ms": record.timeline.engine_up_ms,
            "resumed_ms": record.timeline.resumed_ms,
        },
        "requests_resumed": record.requests_resumed,
        "requests_failed": record.requests_failed,
        "report": record.report,
    })
}

fn quarantined_json(request: &QuarantinedRequest) -> Value {
    json!({
        "object": "quarantine",
        "fingerprint": format!("{:016x}", request.fingerprint),
        "seconds_left": request.left.as_secs(),
        "fault_id": request.fault_id.to_string(),
    })
}
