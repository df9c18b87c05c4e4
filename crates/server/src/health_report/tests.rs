use std::time::Duration;

use expect_test::{Expect, expect};
use relight_supervisor::{LoadProgress, Status};

use super::*;

fn check(health: &Health, expected: &Expect) {
    let json = health_json(health, "m", 1_700_000_000);
    let facts = ["status", "issues", "degraded", "state"];
    let mut text: String = facts
        .iter()
        .map(|key| format!("{key} {}\n", json[key]))
        .collect();
    text.push_str(&json["engine"].to_string());
    expected.assert_eq(&text);
}

#[test]
fn health_has_two_words_and_says_what_is_wrong() {
    let loading = Some(LoadProgress {
        done_bytes: 5,
        total_bytes: 9,
    });
    check(
        &Health {
            status: Status::Loading,
            loading,
            ..Health::default()
        },
        &expect![[r#"
            status "unhealthy"
            issues [{"time":"2023-11-14T22:13:20Z","description":"the model is loading"}]
            degraded false
            state "loading"
            {"pid":null,"restarts":0,"recent_faults":0,"contained_faults":0,"last_token_age_s":null,"last_fault":null,"loading":{"done_bytes":5,"total_bytes":9},"kernels":null,"speculation":null,"slots":null,"pages":null}"#]],
    );
    check(
        &Health {
            status: Status::Ready,
            engine_pid: Some(7),
            ..Health::default()
        },
        &expect![[r#"
            status "healthy"
            issues []
            degraded false
            state "ready"
            {"pid":7,"restarts":0,"recent_faults":0,"contained_faults":0,"last_token_age_s":null,"last_fault":null,"loading":null,"kernels":null,"speculation":null,"slots":null,"pages":null}"#]],
    );
}

#[test]
fn a_fault_is_an_issue_until_the_server_has_recovered() {
    let faulty = |status| Health {
        status,
        restarts: 1,
        recent_faults: 2,
        last_fault: Some(("the engine was killed".to_owned(), Duration::from_secs(60))),
        last_generation_age: Some(Duration::from_millis(250)),
        ..Health::default()
    };
    check(
        &faulty(Status::Recovering),
        &expect![[r#"
            status "unhealthy"
            issues [{"time":"2023-11-14T22:12:20Z","description":"the engine was killed"}]
            degraded false
            state "recovering"
            {"pid":null,"restarts":1,"recent_faults":2,"contained_faults":0,"last_token_age_s":0.25,"last_fault":{"time":"2023-11-14T22:12:20Z","description":"the engine was killed"},"loading":null,"kernels":null,"speculation":null,"slots":null,"pages":null}"#]],
    );
    check(
        &faulty(Status::Degraded),
        &expect![[r#"
            status "healthy"
            issues [{"time":"2023-11-14T22:12:20Z","description":"the engine was killed"}]
            degraded true
            state "degraded"
            {"pid":null,"restarts":1,"recent_faults":2,"contained_faults":0,"last_token_age_s":0.25,"last_fault":{"time":"2023-11-14T22:12:20Z","description":"the engine was killed"},"loading":null,"kernels":null,"speculation":null,"slots":null,"pages":null}"#]],
    );
    check(
        &faulty(Status::Ready),
        &expect![[r#"
            status "healthy"
            issues []
            degraded false
            state "ready"
            {"pid":null,"restarts":1,"recent_faults":2,"contained_faults":0,"last_token_age_s":0.25,"last_fault":{"time":"2023-11-14T22:12:20Z","description":"the engine was killed"},"loading":null,"kernels":null,"speculation":null,"slots":null,"pages":null}"#]],
    );
}
