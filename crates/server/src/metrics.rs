//! What `/metrics` says: what the server counts itself, and the supervisor's snapshot, under
//! our own names and under the names of vLLM that dashboards and routers look for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{
    EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{Stats, StepCosts};
use relight_supervisor::{Health, Recoveries, Snapshot};

/// Seconds; fine at the bottom for small models, coarse at the top for long prompts.
const LATENCY_BUCKETS: [f64; 20] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0,
];
const REQUEST_BUCKETS: [f64; 16] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
];

/// The format's media type.
pub(crate) const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    route: String,
    status: u16,
}

/// One label: its name and the word that it holds.
type Word = [(&'static str, &'static str); 1];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    block_size: u64,
    num_gpu_blocks: u64,
}

/// What the server counts itself. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    answers: Family<AnswerLabels, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) panics: Counter,
    first_token: Histogram,
    between_tokens: Histogram,
    whole_request: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            answers: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            panics: Counter::default(),
            first_token: Histogram::new(LATENCY_BUCKETS),
            between_tokens: Histogram::new(LATENCY_BUCKETS),
            whole_request: Histogram::new(REQUEST_BUCKETS),
        }
    }

    /// Counts an answer. Routes are our own patterns, so there are few of them.
    pub(crate) fn answered(&self, route: &str, status: u16) {
        let route = route.to_owned();
        self.answers
            .get_or_create(&AnswerLabels { route, status })
            .inc();
    }

    pub(crate) fn first_token(&self, since_arrival: Duration) {
        self.first_token.observe(since_arrival.as_secs_f64());
    }

    pub(crate) fn next_token(&self, since_last: Duration) {
        self.between_tokens.observe(since_last.as_secs_f64());
    }

    pub(crate) fn finished(&self, since_arrival: Duration) {
        self.whole_request.observe(since_arrival.as_secs_f64());
    }

    /// Everything as Prometheus text.
    pub(crate) fn to_text(&self, model: &str, health: &Health, snapshot: &Snapshot) -> String {
        let label = ("model_name".into(), model.to_owned().into());
        let mut registry = Registry::with_labels([label].into_iter());
        self.register_own(&mut registry);
        register_health(&mut registry, health);
        register_requests(&mut registry, snapshot);
        register_recovery(&mut registry, snapshot);
        register_stats(&mut registry, health, snapshot);
        let mut text = String::new();
        if prometheus_text::encode(&mut text, &registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        text
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register(
            "relight_http_answers",
            "Answers by route pattern and status, 499 for a client that left first",
            self.answers.clone(),
        );
        registry.register(
            "relight_http_connections",
            "Open connections",
            self.connections.clone(),
        );
        registry.register(
            "relight_http_connections_refused",
            "Connections above the bound",
            self.connections_refused.clone(),
        );
        registry.register(
            "relight_http_panics",
            "Panics contained in handlers",
            self.panics.clone(),
        );
        for name in ["relight", "vllm"] {
            let name = |rest| match name {
                "vllm" => format!("vllm:{rest}"),
                _ => format!("relight_{rest}"),
            };
            registry.register(
                name("time_to_first_token_seconds"),
                "From the arrival of a request to its first token",
                self.first_token.clone(),
            );
            registry.register(
                name("inter_token_latency_seconds"),
                "Between two tokens of one choice",
                self.between_tokens.clone(),
            );
            registry.register(
                name("e2e_request_latency_seconds"),
                "From the arrival of a request to its last token",
                self.whole_request.clone(),
            );
        }
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    registry.register(name, help, ConstGauge::new(value));
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}

fn register_health(registry: &mut Registry, health: &Health) {
    let status = Family::<Word, Gauge>::default();
    let word = health.status.word();
    status.get_or_create(&[("state", word)]).set(1);
    registry.register("relight_status", "1 for the state the server is in", status);
    let ready = u64::from(health.status.is_ready());
    gauge(
        registry,
        "relight_ready",
        "Whether requests are served",
        ready,
    );
    gauge(
        registry,
        "relight_recent_faults",
        "Faults of single requests contained within the last minute",
        health.recent_faults,
    );
    if let Some(age) = health.last_generation_age {
        registry.register(
            "relight_last_token_age_seconds",
            "Time since the last token of any request",
            ConstGauge::new(age.as_secs_f64()),
        );
    }
    if let Some(card) = &health.card {
        let labels = CacheLabels {
            block_size: PAGE_TOKENS as u64,
            num_gpu_blocks: u64::from(card.pages),
        };
        for name in ["relight_cache_config_info", "vllm:cache_config_info"] {
            let info = Family::<CacheLabels, Gauge>::default();
            info.get_or_create(&labels).set(1);
            registry.register(name, "Pages of key/value state and tokens in each", info);
        }
    }
}

fn register_requests(registry: &mut Registry, snapshot: &Snapshot) {
    counter(
        registry,
        "relight_requests_submitted",
        "Requests handed to the supervisor",
        snapshot.requests_submitted_total,
    );
    let outcomes = counts("outcome", &snapshot.requests);
    registry.register("relight_requests", "Closed requests by outcome", outcomes);
    let theirs = Family::<Word, Counter>::default();
    for (&outcome, &count) in &snapshot.requests {
        let reason = match outcome {
            "cancelled" => "abort",
            "failed" | "refused" => "error",
            finished => finished,
        };
        let label = [("finished_reason", reason)];
        theirs.get_or_create(&label).inc_by(count);
    }
    registry.register("vllm:request_success", "Closed requests by outcome", theirs);
    let faults = counts("fault", &snapshot.faults);
    registry.register("relight_faults", "Failed requests by fault", faults);
}

fn counts(label: &'static str, words: &BTreeMap<&'static str, u64>) -> Family<Word, Counter> {
    let family = Family::<Word, Counter>::default();
    for (&word, &count) in words {
        family.get_or_create(&[(label, word)]).inc_by(count);
    }
    family
}

fn register_recovery(registry: &mut Registry, snapshot: &Snapshot) {
    let restarts = counts("cause", &snapshot.restarts);
    registry.register("relight_engine_restarts", "Engines lost by cause", restarts);
    let latches = counts("cause", &snapshot.latches);
    let help = "Generators replaced within their engine by cause";
    registry.register("relight_latches", help, latches);
    let contained = counts("phase", &snapshot.contained);
    let help = "Faults that cost one request, by phase";
    registry.register("relight_contained_faults", help, contained);
    for (name, help, value) in [
        (
            "relight_requests_resumed",
            "Requests taken up again by another engine",
            snapshot.requests_resumed_total,
        ),
        (
            "relight_tokens_replayed",
            "Tokens given to an engine again",
            snapshot.tokens_replayed_total,
        ),
        (
            "relight_quarantines",
            "Requests found guilty of engine deaths",
            snapshot.quarantines_total,
        ),
        (
            "relight_quarantine_hits",
            "Requests refused because one like them was found guilty",
            snapshot.quarantine_hits_total,
        ),
        (
            "relight_protocol_violations",
            "Frames that an engine got wrong",
            snapshot.protocol_violations_total,
        ),
        (
            "relight_duplicate_events",
            "Events of an engine that were known already",
            snapshot.duplicate_events_total,
        ),
        (
            "relight_usage_corrections",
            "Usage figures of an engine that were not the ledger's",
            snapshot.usage_corrections_total,
        ),
        (
            "relight_invariant_breaches",
            "Bugs of the supervisor that were noticed and survived",
            snapshot.invariant_breaches_total,
        ),
    ] {
        counter(registry, name, help, value);
    }
    registry.register(
        "relight_recovery_seconds",
        "From the detection of an engine's death to the next token",
        RecoveryHistogram(snapshot.recoveries),
    );
    let ledger_bytes = snapshot.ledger_bytes as u64;
    let help = "Request bytes held for replay";
    gauge(registry, "relight_ledger_bytes", help, ledger_bytes);
}

fn register_stats(registry: &mut Registry, health: &Health, snapshot: &Snapshot) {
    let stats = &snapshot.stats;
    let waiting = u64::from(stats.sequences_waiting).saturating_add(snapshot.queue_depth as u64);
    let running = u64::from(stats.sequences_running);
    let answers = stats.generated_tokens_total;
    let (steps, prompts) = (stats.steps_total, stats.prompt_tokens_total);
    counter(registry, "relight_steps", "Forward passes", steps);
    register_faults(registry, stats);
    register_costs(registry, &stats.costs);
    let (name, help) = ("relight_pages_cached", "Pages kept for their prefix alone");
    gauge(registry, name, help, u64::from(stats.pages_cached));
    let (name, help) = ("relight_pages_used", "Pages that sequences hold");
    gauge(registry, name, help, u64::from(stats.pages_used));
    let (name, help) = ("relight_suspects", "Requests that may have ended an engine");
    gauge(registry, name, help, snapshot.suspects as u64);
    let (name, help) = (
        "relight_requests_in_flight_max",
        "Requests an engine may hold",
    );
    gauge(registry, name, help, snapshot.in_flight_max as u64);
    let in_flight = snapshot.in_flight as u64;
    let (name, help) = ("relight_requests_in_flight", "Requests an engine holds");
    gauge(registry, name, help, in_flight);
    let pages = if stats.pages_total == 0 {
        health.card.as_ref().map_or(0, |card| card.pages)
    } else {
        stats.pages_total
    };
    let used = f64::from(stats.pages_used) / f64::from(pages.max(1));
    for vllm in [false, true] {
        let name = |ours: &str, theirs: &str| {
            if vllm {
                format!("vllm:{theirs}")
            } else {
                format!("relight_{ours}")
            }
        };
        let named = name("sequences_running", "num_requests_running");
        gauge(registry, &named, "Sequences in steps", running);
        let named = name("sequences_waiting", "num_requests_waiting");
        gauge(registry, &named, "Sequences not in steps yet", waiting);
        registry.register(
            name("kv_usage_ratio", "kv_cache_usage_perc"),
            "Share of the pages in use, 1 is all",
            ConstGauge::new(used),
        );
        let named = name("prompt_tokens", "prompt_tokens");
        counter(registry, &named, "Tokens of prompts", prompts);
        let named = name("generated_tokens", "generation_tokens");
        counter(registry, &named, "Tokens of answers", answers);
        let named = name("prefix_cache_queries", "prefix_cache_queries");
        let help = "Prompt tokens looked up in the prefix index";
        counter(registry, &named, help, prompts);
        let named = name("prefix_cache_hits", "prefix_cache_hits");
        let help = "Prompt tokens found in the prefix index";
        counter(registry, &named, help, stats.cached_tokens_total);
        let named = name("draft_tokens", "spec_decode_num_draft_tokens");
        let help = "Tokens computed in case they would be drawn next";
        counter(registry, &named, help, stats.drafted_tokens_total);
        let named = name("draft_tokens_accepted", "spec_decode_num_accepted_tokens");
        let help = "Tokens computed ahead that were drawn";
        counter(registry, &named, help, stats.accepted_drafts_total);
        let named = name("preemptions", "num_preemptions");
        let help = "Sequences put back for want of pages";
        counter(registry, &named, help, stats.preemptions_total);
    }
}

/// Where the time of steps goes, and what they read.
fn register_costs(registry: &mut Registry, costs: &StepCosts) {
    let seconds = |microseconds: u64| microseconds as f64 / 1e6;
    let parts = Family::<Word, Counter<f64, AtomicU64>>::default();
    for (part, microseconds) in costs.parts() {
        let counter = parts.get_or_create(&[("part", part)]);
        counter.inc_by(seconds(microseconds));
    }
    let help = "Time of steps by part; the parts do not overlap";
    registry.register("relight_step_seconds", help, parts);
    let waits = Counter::<f64, AtomicU64>::default();
    waits.inc_by(seconds(costs.wait_us));
    let help = "Time of steps in which the first worker waited for the others";
    registry.register("relight_step_wait_seconds", help, waits);
    let (name, help) = ("relight_weights_read_bytes", "Weights read, once per step");
    counter(registry, name, help, costs.weight_bytes);
    let (name, help) = (
        "relight_kv_read_bytes",
        "Keys and values read, once per step and sequence",
    );
    counter(registry, name, help, costs.kv_bytes);
}

/// What an engine got over by itself.
fn register_faults(registry: &mut Registry, stats: &Stats) {
    for (name, help, value) in [
        (
            "relight_audits",
            "Audits of pages and slots",
            stats.audits_total,
        ),
        (
            "relight_audit_failures",
            "Audits that found a mistake",
            stats.audit_failures_total,
        ),
        (
            "relight_pages_adopted",
            "Pages that a new engine had from the one before",
            stats.pages_adopted_total,
        ),
        (
            "relight_pages_corrupt",
            "Adopted pages that were damaged and computed again",
            stats.pages_corrupt_total,
        ),
    ] {
        counter(registry, name, help, value);
    }
}

/// The supervisor's own histogram, whose buckets hold all that is below their bound.
#[derive(Debug)]
struct RecoveryHistogram(Recoveries);

impl EncodeMetric for RecoveryHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Self(recoveries) = self;
        // The encoder adds the bucket without a bound itself.
        let (mut buckets, mut below) = (Vec::new(), 0);
        for (bound, count) in Recoveries::BOUNDS_S.into_iter().zip(recoveries.counts) {
            buckets.push((bound, count.saturating_sub(below)));
            below = count;
        }
        let (sum, count) = (recoveries.sum_s, recoveries.total_count);
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Metrics>);

impl OpenConnection {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.connections.inc();
        Self(Arc::clone(metrics))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

#[cfg(test)]
mod tests;
