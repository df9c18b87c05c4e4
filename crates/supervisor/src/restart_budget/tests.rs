use relight_protocol::limits::RESTARTS_MAX;

use super::*;

#[test]
fn the_wait_doubles_up_to_its_maximum_and_the_budget_ends() {
    let mut budget = RestartBudget::new(RESTARTS_MAX);
    let waits: Vec<Verdict> = (0..RESTARTS_MAX).map(|_| budget.record(0)).collect();
    let expected: Vec<Verdict> = (0..RESTARTS_MAX)
        .map(|death| Verdict::Restart {
            wait_ms: (RESTART_BACKOFF_MS_MIN << death).min(RESTART_BACKOFF_MS_MAX),
        })
        .collect();
    assert_eq!(waits, expected);
    assert_eq!(budget.record(0), Verdict::Exhausted);
}

#[test]
fn deaths_far_apart_never_exhaust_the_budget() {
    let mut budget = RestartBudget::new(RESTARTS_MAX);
    for death in 0..100 {
        let verdict = budget.record(death * RESTART_PERIOD_MS / RESTARTS_MAX as u64);
        assert!(matches!(verdict, Verdict::Restart { .. }), "death {death}");
    }
}

#[test]
fn a_forgiven_budget_is_whole() {
    let mut budget = RestartBudget::new(RESTARTS_MAX);
    for _ in 0..=RESTARTS_MAX {
        budget.record(0);
    }
    budget.forgive();
    let wait_ms = RESTART_BACKOFF_MS_MIN;
    assert_eq!(budget.record(0), Verdict::Restart { wait_ms });
}

#[test]
fn an_engine_that_made_a_token_is_replaced_without_a_longer_wait() {
    let mut budget = RestartBudget::new(RESTARTS_MAX);
    let first = budget.record(0);
    assert_ne!(budget.record(1), first);
    budget.progressed();
    assert_eq!(budget.record(2), first);
}
