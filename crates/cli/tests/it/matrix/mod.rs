//! The fault matrix with real processes and real signals: for every fault, what its culprit
//! gets, that nobody else's bytes change, and what health and metrics say. SPECIFICATION.md
//! lists which row is which test.

mod blame;
mod chorus;
mod churn;
mod clients;
mod deaths;
mod private;
mod sweep;

use serde_json::{Value, json};

use crate::server::Server;

/// An order that strikes once.
fn once(place: &str, blow: &str) -> Value {
    json!({ "place": place, "blow": blow, "times": 1 })
}

/// An order that strikes whoever has `marker` in the prompt, in every engine.
fn whoever(marker: &str, place: &str, blow: &str) -> Value {
    json!({ "place": place, "blow": blow, "marker": marker, "every_engine": true })
}

/// Engines lost for this reason.
fn restarts(server: &Server, cause: &str) -> f64 {
    counted(server, "relight_engine_restarts_total", cause)
}

/// A counter, 0 if it has not begun to count.
fn counted(server: &Server, name: &str, label: &str) -> f64 {
    let text = server.get("/metrics").text();
    let start = format!("{name}{{");
    let samples = text
        .lines()
        .filter(|line| line.starts_with(&start) && line.contains(label))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    samples.sum()
}
