use expect_test::expect;

use super::*;

fn snapshot() -> Snapshot {
    let mut recoveries = Recoveries {
        total_count: 3,
        sum_s: 70.2,
        longest_s: 70.0,
        ..Recoveries::default()
    };
    for (count, bound) in recoveries.counts.iter_mut().zip(Recoveries::BOUNDS_S) {
        *count = if bound < 0.1 { 0 } else { 2 };
    }
    Snapshot {
        stats: Stats {
            sequences_running: 2,
            sequences_waiting: 1,
            pages_used: 8,
            pages_cached: 4,
            pages_total: 32,
            steps_total: 900,
            prompt_tokens_total: 500,
            cached_tokens_total: 64,
            generated_tokens_total: 300,
            drafted_tokens_total: 9,
            accepted_drafts_total: 4,
            preemptions_total: 1,
            contained_faults_total: 2,
            audits_total: 7,
            audit_failures_total: 1,
            pages_adopted_total: 6,
            pages_corrupt_total: 2,
            costs: StepCosts {
                embed_us: 250_000,
                project_us: 1_000_000,
                attention_us: 2_000_000,
                output_us: 500_000,
                feed_forward_us: 4_000_000,
                head_us: 1_500_000,
                rest_us: 125_000,
                wait_us: 750_000,
                weight_bytes: 90_000_000_000,
                kv_bytes: 7_000_000,
            },
        },
        restarts: [("killed", 1)].into(),
        requests: [
            ("stop", 5),
            ("length", 2),
            ("cancelled", 1),
            ("failed", 1),
            ("refused", 3),
        ]
        .into(),
        faults: [("quarantined", 1)].into(),
        queue_depth: 4,
        in_flight: 3,
        recoveries,
        ..Snapshot::default()
    }
}

/// The samples of the families that begin with `prefix`, without most of the buckets.
fn samples(prefix: &str) -> String {
    let metrics = Metrics::new();
    metrics.answered("/v1/models", 200);
    metrics.answered("/v1/models", 200);
    metrics.answered("other", 404);
    metrics.first_token(Duration::from_millis(30));
    metrics.next_token(Duration::from_millis(8));
    metrics.finished(Duration::from_secs(2));
    let health = Health {
        last_generation_age: Some(Duration::from_millis(1500)),
        ..Health::default()
    };
    let text = metrics.to_text("m \"q\"", &health, &snapshot());
    let is_wanted = |line: &&str| {
        let is_bucket = line.contains("_seconds_bucket") && !line.contains("le=\"0.05\"");
        line.starts_with(prefix) && (!is_bucket || line.starts_with("relight_recovery"))
    };
    let mut samples: Vec<&str> = text.lines().filter(is_wanted).collect();
    samples.sort_unstable();
    samples.join("\n")
}

#[test]
fn our_own_names_tell_everything() {
    let all = samples("relight_");
    let is_other = |line: &&str| !line.starts_with("relight_recovery");
    let others: Vec<&str> = all.lines().filter(is_other).collect();
    expect![[r#"
        relight_audit_failures_total{model_name="m \"q\""} 1
        relight_audits_total{model_name="m \"q\""} 7
        relight_draft_tokens_accepted_total{model_name="m \"q\""} 4
        relight_draft_tokens_total{model_name="m \"q\""} 9
        relight_duplicate_events_total{model_name="m \"q\""} 0
        relight_e2e_request_latency_seconds_bucket{model_name="m \"q\"",le="0.05"} 0
        relight_e2e_request_latency_seconds_count{model_name="m \"q\""} 1
        relight_e2e_request_latency_seconds_sum{model_name="m \"q\""} 2.0
        relight_engine_restarts_total{model_name="m \"q\"",cause="killed"} 1
        relight_faults_total{model_name="m \"q\"",fault="quarantined"} 1
        relight_generated_tokens_total{model_name="m \"q\""} 300
        relight_http_answers_total{model_name="m \"q\"",route="/v1/models",status="200"} 2
        relight_http_answers_total{model_name="m \"q\"",route="other",status="404"} 1
        relight_http_connections_refused_total{model_name="m \"q\""} 0
        relight_http_connections{model_name="m \"q\""} 0
        relight_http_panics_total{model_name="m \"q\""} 0
        relight_inter_token_latency_seconds_bucket{model_name="m \"q\"",le="0.05"} 1
        relight_inter_token_latency_seconds_count{model_name="m \"q\""} 1
        relight_inter_token_latency_seconds_sum{model_name="m \"q\""} 0.008
        relight_invariant_breaches_total{model_name="m \"q\""} 0
        relight_kv_read_bytes_total{model_name="m \"q\""} 7000000
        relight_kv_usage_ratio{model_name="m \"q\""} 0.25
        relight_last_token_age_seconds{model_name="m \"q\""} 1.5
        relight_ledger_bytes{model_name="m \"q\""} 0
        relight_pages_adopted_total{model_name="m \"q\""} 6
        relight_pages_cached{model_name="m \"q\""} 4
        relight_pages_corrupt_total{model_name="m \"q\""} 2
        relight_pages_used{model_name="m \"q\""} 8
        relight_preemptions_total{model_name="m \"q\""} 1
        relight_prefix_cache_hits_total{model_name="m \"q\""} 64
        relight_prefix_cache_queries_total{model_name="m \"q\""} 500
        relight_prompt_tokens_total{model_name="m \"q\""} 500
        relight_protocol_violations_total{model_name="m \"q\""} 0
        relight_quarantine_hits_total{model_name="m \"q\""} 0
        relight_quarantines_total{model_name="m \"q\""} 0
        relight_ready{model_name="m \"q\""} 0
        relight_recent_faults{model_name="m \"q\""} 0
        relight_requests_in_flight_max{model_name="m \"q\""} 0
        relight_requests_in_flight{model_name="m \"q\""} 3
        relight_requests_resumed_total{model_name="m \"q\""} 0
        relight_requests_submitted_total{model_name="m \"q\""} 0
        relight_requests_total{model_name="m \"q\"",outcome="cancelled"} 1
        relight_requests_total{model_name="m \"q\"",outcome="failed"} 1
        relight_requests_total{model_name="m \"q\"",outcome="length"} 2
        relight_requests_total{model_name="m \"q\"",outcome="refused"} 3
        relight_requests_total{model_name="m \"q\"",outcome="stop"} 5
        relight_sequences_running{model_name="m \"q\""} 2
        relight_sequences_waiting{model_name="m \"q\""} 5
        relight_status{model_name="m \"q\"",state="starting"} 1
        relight_step_seconds_total{model_name="m \"q\"",part="attention"} 2.0
        relight_step_seconds_total{model_name="m \"q\"",part="embed"} 0.25
        relight_step_seconds_total{model_name="m \"q\"",part="feed_forward"} 4.0
        relight_step_seconds_total{model_name="m \"q\"",part="head"} 1.5
        relight_step_seconds_total{model_name="m \"q\"",part="output"} 0.5
        relight_step_seconds_total{model_name="m \"q\"",part="project"} 1.0
        relight_step_seconds_total{model_name="m \"q\"",part="rest"} 0.125
        relight_step_wait_seconds_total{model_name="m \"q\""} 0.75
        relight_steps_total{model_name="m \"q\""} 900
        relight_suspects{model_name="m \"q\""} 0
        relight_time_to_first_token_seconds_bucket{model_name="m \"q\"",le="0.05"} 1
        relight_time_to_first_token_seconds_count{model_name="m \"q\""} 1
        relight_time_to_first_token_seconds_sum{model_name="m \"q\""} 0.03
        relight_tokens_replayed_total{model_name="m \"q\""} 0
        relight_usage_corrections_total{model_name="m \"q\""} 0
        relight_weights_read_bytes_total{model_name="m \"q\""} 90000000000"#]]
    .assert_eq(&others.join("\n"));
}

#[test]
fn the_time_that_recovery_takes_is_a_histogram() {
    expect![[r#"
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="+Inf"} 3
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="0.01"} 0
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="0.025"} 0
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="0.05"} 0
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="0.1"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="0.25"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="0.5"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="1"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="10"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="2.5"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="30"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="5"} 2
        relight_recovery_seconds_bucket{model_name="m \"q\"",le="60"} 2
        relight_recovery_seconds_count{model_name="m \"q\""} 3
        relight_recovery_seconds_sum{model_name="m \"q\""} 70.2"#]]
    .assert_eq(&samples("relight_recovery"));
}

#[test]
fn known_names_tell_what_dashboards_ask() {
    expect![[r#"
        vllm:e2e_request_latency_seconds_bucket{model_name="m \"q\"",le="0.05"} 0
        vllm:e2e_request_latency_seconds_count{model_name="m \"q\""} 1
        vllm:e2e_request_latency_seconds_sum{model_name="m \"q\""} 2.0
        vllm:generation_tokens_total{model_name="m \"q\""} 300
        vllm:inter_token_latency_seconds_bucket{model_name="m \"q\"",le="0.05"} 1
        vllm:inter_token_latency_seconds_count{model_name="m \"q\""} 1
        vllm:inter_token_latency_seconds_sum{model_name="m \"q\""} 0.008
        vllm:kv_cache_usage_perc{model_name="m \"q\""} 0.25
        vllm:num_preemptions_total{model_name="m \"q\""} 1
        vllm:num_requests_running{model_name="m \"q\""} 2
        vllm:num_requests_waiting{model_name="m \"q\""} 5
        vllm:prefix_cache_hits_total{model_name="m \"q\""} 64
        vllm:prefix_cache_queries_total{model_name="m \"q\""} 500
        vllm:prompt_tokens_total{model_name="m \"q\""} 500
        vllm:request_success_total{model_name="m \"q\"",finished_reason="abort"} 1
        vllm:request_success_total{model_name="m \"q\"",finished_reason="error"} 4
        vllm:request_success_total{model_name="m \"q\"",finished_reason="length"} 2
        vllm:request_success_total{model_name="m \"q\"",finished_reason="stop"} 5
        vllm:spec_decode_num_accepted_tokens_total{model_name="m \"q\""} 4
        vllm:spec_decode_num_draft_tokens_total{model_name="m \"q\""} 9
        vllm:time_to_first_token_seconds_bucket{model_name="m \"q\"",le="0.05"} 1
        vllm:time_to_first_token_seconds_count{model_name="m \"q\""} 1
        vllm:time_to_first_token_seconds_sum{model_name="m \"q\""} 0.03"#]]
    .assert_eq(&samples("vllm:"));
}

#[test]
fn names_that_routers_look_for_carry_the_model() {
    let text = Metrics::new().to_text("m", &Health::default(), &snapshot());
    for (name, value) in [
        ("vllm:num_requests_running", "2"),
        ("vllm:num_requests_waiting", "5"),
        ("vllm:kv_cache_usage_perc", "0.25"),
        ("vllm:prompt_tokens_total", "500"),
        ("vllm:generation_tokens_total", "300"),
        ("vllm:prefix_cache_queries_total", "500"),
        ("vllm:prefix_cache_hits_total", "64"),
        ("vllm:num_preemptions_total", "1"),
    ] {
        let line = format!("{name}{{model_name=\"m\"}} {value}\n");
        assert!(text.contains(&line), "no {line}in\n{text}");
    }
}
