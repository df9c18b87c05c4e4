use relight_protocol::{ChoiceIndex, Delta, Rejected, Stats, TokenId, Usage};

use super::super::bench::{Bench, delivered, delta, faults, refused, request, sent, usage};
use super::super::{Exit, Input};
use super::*;
use crate::config::Bounds;
use crate::health::Status;

fn overload(fault: &Fault) -> (Overload, u32) {
    match fault {
        Fault::Overloaded {
            resource,
            retry_after_s,
        } => (*resource, *retry_after_s),
        other => panic!("not an overload: {other:?}"),
    }
}

#[test]
fn a_request_runs_from_submit_to_finish() {
    let mut bench = Bench::serving();
    let actions = bench.submit(1);
    assert_eq!(actions[0], Action::Admit { id: RequestId(1) });
    assert_eq!(sent(&actions), [(1, None)]);
    let accepted = StreamEvent::Accepted {
        prompt_tokens: 2,
        prompt_text: None,
    };
    assert_eq!(delivered(&bench.accepted(1)), [(1, accepted)]);
    let token = StreamEvent::Delta(delta(1, 0));
    assert_eq!(delivered(&bench.token(1, 0)), [(1, token)]);
    assert_eq!(bench.choice_finished(1, 1).len(), 1);
    let finished = bench.finished(1, 1);
    assert_eq!(delivered(&finished), [(1, StreamEvent::Finished(usage(1)))]);
    assert_eq!(bench.core.snapshot().requests.get("stop"), Some(&1));
    bench.assert_empty();
}

#[test]
fn requests_that_come_while_the_model_loads_are_sent_in_order_once_it_is_ready() {
    let mut bench = Bench::started(Bounds::default());
    for id in [1, 2, 3] {
        assert_eq!(bench.submit(id), [Action::Admit { id: RequestId(id) }]);
    }
    assert_eq!(bench.core.snapshot().queue_depth, 3);
    let ids: Vec<u64> = sent(&bench.load()).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn a_full_queue_refuses_at_once_with_a_wait_between_one_and_ten_seconds() {
    let bounds = Bounds {
        queue_requests_max: 2,
        engine_requests_max: 1,
        ..Bounds::default()
    };
    let mut bench = Bench::serving_within(bounds);
    for id in 1..=3 {
        bench.submit(id);
    }
    let (resource, retry_after_s) = overload(&refused(&bench.submit(4)));
    assert_eq!(resource, Overload::QueueFull);
    assert!((1..=10).contains(&retry_after_s));
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.queue_depth), (1, 2));
    assert_eq!(snapshot.requests.get("refused"), Some(&1));
}

#[test]
fn the_wait_grows_with_the_queue_and_with_how_long_requests_take() {
    let bounds = Bounds {
        queue_requests_max: 8,
        engine_requests_max: 1,
        ..Bounds::default()
    };
    let mut bench = Bench::serving_within(bounds);
    for id in 1..=8 {
        bench.submit(id);
    }
    let retry_after_s = |bench: &Bench| bench.core.health().retry_after_s;
    assert_eq!(retry_after_s(&bench), limits::RETRY_AFTER_S_MIN);
    for id in 1..=3 {
        bench.now_ms += 4000;
        bench.cancel(id);
    }
    let slow = retry_after_s(&bench);
    assert!(slow > limits::RETRY_AFTER_S_MIN, "{slow}");
    for id in 4..=8 {
        bench.cancel(id);
    }
    assert!(retry_after_s(&bench) < slow);
}

#[test]
fn the_engine_gets_no_more_than_it_may_hold_and_the_next_when_one_ends() {
    let bounds = Bounds {
        engine_requests_max: 1,
        ..Bounds::default()
    };
    let mut bench = Bench::serving_within(bounds);
    assert_eq!(sent(&bench.submit(1)), [(1, None)]);
    assert_eq!(sent(&bench.submit(2)), []);
    assert_eq!(sent(&bench.cancel(1)), [(2, None)]);
}

#[test]
fn the_ledger_bounds_the_bytes_of_all_requests() {
    let mut bench = Bench::serving();
    let bytes = limits::LEDGER_BYTES_MAX / 2 + 1;
    let mut submit = |id: u64| {
        bench.input(Input::Submit {
            id: RequestId(id),
            request: Box::new(request("large")),
            fingerprint: Fingerprint { hash: id, bytes },
        })
    };
    assert_eq!(submit(1).len(), 2);
    let (resource, _) = overload(&refused(&submit(2)));
    assert_eq!(resource, Overload::QueueFull);
}

#[test]
fn a_request_that_waits_too_long_for_its_first_engine_is_failed() {
    let mut bench = Bench::started(Bounds {
        queue_age_ms_max: 1000,
        ..Bounds::default()
    });
    bench.submit(1);
    assert_eq!(faults(&bench.wait(999)), []);
    let actions = bench.wait(1);
    let (resource, _) = overload(&faults(&actions)[0].1);
    assert_eq!(resource, Overload::QueueTooOld);
    bench.assert_empty();
}

#[test]
fn a_request_for_no_choice_or_too_many_is_refused() {
    let mut bench = Bench::serving();
    for choices in [0, limits::CHOICES_MAX + 1] {
        let odd = Request {
            choices,
            ..request("odd")
        };
        let fault = refused(&bench.submit_request(1, odd));
        assert!(matches!(fault, Fault::InvalidRequest { .. }));
    }
}

#[test]
fn what_an_engine_says_twice_is_delivered_once() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.token(1, 0);
    assert_eq!(bench.accepted(1), []);
    assert_eq!(bench.token(1, 0), []);
    bench.choice_finished(1, 1);
    assert_eq!(bench.choice_finished(1, 1), []);
    bench.finished(1, 1);
    assert_eq!(bench.finished(1, 1), []);
    assert_eq!(bench.core.snapshot().duplicate_events_total, 4);
    assert_eq!(bench.status(), Status::Ready);
}

/// An engine that says this is killed, and nothing of it reaches a client.
fn is_a_violation(event: impl FnOnce(&mut Bench) -> Vec<Action>) {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.token(1, 0);
    let engine = bench.engine;
    assert_eq!(event(&mut bench), [Action::Kill { engine }]);
    assert_eq!(bench.token(1, 1), [], "a condemned engine is not believed");
    assert_eq!(bench.core.snapshot().protocol_violations_total, 1);
    assert_eq!(bench.status(), Status::Recovering);
    bench.exit(Exit::Signal(9));
    let resumed = sent(&bench.restart());
    assert_eq!(resumed[0].0, 1);
    assert_eq!(bench.token(1, 1).len(), 1);
    assert_eq!(bench.core.snapshot().restarts.get("protocol"), Some(&1));
}

#[test]
fn a_skipped_index_gets_the_engine_killed_and_the_request_resumed() {
    is_a_violation(|bench| bench.token(1, 2));
}

#[test]
fn a_different_token_gets_the_engine_killed() {
    is_a_violation(|bench| {
        bench.event(Event::Delta(Delta {
            token: TokenId(9),
            ..delta(1, 0)
        }))
    });
}

#[test]
fn an_unknown_choice_gets_the_engine_killed() {
    is_a_violation(|bench| {
        bench.event(Event::Delta(Delta {
            choice: ChoiceIndex(4),
            ..delta(1, 0)
        }))
    });
}

#[test]
fn a_request_id_from_nowhere_gets_the_engine_killed() {
    is_a_violation(|bench| bench.token(77, 0));
    is_a_violation(|bench| bench.token(0, 0));
}

#[test]
fn a_finish_before_the_last_choice_gets_the_engine_killed() {
    is_a_violation(|bench| bench.finished(1, 1));
}

#[test]
fn a_second_hello_gets_the_engine_killed() {
    is_a_violation(Bench::hello);
}

#[test]
fn a_token_for_a_request_that_still_waits_gets_the_engine_killed() {
    let mut bench = Bench::serving_within(Bounds {
        engine_requests_max: 1,
        ..Bounds::default()
    });
    bench.submit(1);
    bench.submit(2);
    let engine = bench.engine;
    assert_eq!(bench.accepted(2), [Action::Kill { engine }]);
}

#[test]
fn a_cancel_reaches_the_engine_once_and_what_follows_is_ignored() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    let actions = bench.cancel(1);
    assert!(matches!(
        actions.as_slice(),
        [Action::Send {
            command: Command::Cancel { id: RequestId(1) },
            ..
        }]
    ));
    assert_eq!(bench.cancel(1), []);
    assert_eq!(bench.token(1, 0), []);
    assert_eq!(bench.finished(1, 0), []);
    assert_eq!(bench.core.snapshot().requests.get("cancelled"), Some(&1));
    bench.assert_empty();
}

#[test]
fn a_request_cancelled_while_it_waits_never_reaches_an_engine() {
    let mut bench = Bench::started(Bounds::default());
    bench.submit(1);
    assert_eq!(bench.cancel(1), []);
    assert_eq!(sent(&bench.load()), []);
}

#[test]
fn a_slow_reader_is_failed_and_its_work_stopped() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.submit(2);
    let id = RequestId(1);
    let actions = bench.input(Input::ReaderTooSlow { id });
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Send {
            command: Command::Cancel { id: RequestId(1) },
            ..
        }
    )));
    let (resource, _) = overload(&faults(&actions)[0].1);
    assert_eq!(resource, Overload::ReaderTooSlow);
    assert_eq!(bench.input(Input::ReaderTooSlow { id }), []);
    assert_eq!(bench.core.ledger().len(), 1);
}

#[test]
fn a_submit_that_does_not_fit_the_pipe_fails_that_request_only() {
    let mut bench = Bench::serving();
    bench.submit(1);
    let actions = bench.input(Input::SubmitTooLarge { id: RequestId(1) });
    assert_eq!(actions.len(), 1);
    assert!(matches!(
        faults(&actions)[0].1,
        Fault::InvalidRequest { .. }
    ));
    bench.assert_empty();
}

#[test]
fn a_rejection_goes_to_its_client_as_it_is_and_leaves_health_alone() {
    let mut bench = Bench::serving();
    bench.submit(1);
    let fault = Fault::ContextFull {
        prompt_tokens: 200,
        context_tokens: 100,
    };
    let rejected = Rejected {
        id: RequestId(1),
        fault: fault.clone(),
        report: None,
    };
    let actions = bench.event(Event::Rejected(rejected));
    assert_eq!(faults(&actions), [(1, fault)]);
    assert_eq!(actions.len(), 1, "the engine needs no cancel");
    assert_eq!(bench.status(), Status::Ready);
    bench.assert_empty();
}

#[test]
fn a_contained_fault_degrades_health_for_a_minute() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.submit(2);
    bench.accepted(1);
    assert_eq!(faults(&bench.failed(1, Fault::NonFiniteLogits)).len(), 1);
    // The engine counts the same fault; it is one all the same.
    bench.event(Event::Stats(Stats {
        contained_faults_total: 1,
        ..Stats::default()
    }));
    let health = bench.core.health();
    assert_eq!((health.status, health.recent_faults), (Status::Degraded, 1));
    assert!(health.last_fault.unwrap().0.contains("non-finite"));
    assert_eq!(health.restarts, 0);
    bench.wait(limits::DEGRADED_MS);
    let health = bench.core.health();
    assert_eq!((health.status, health.recent_faults), (Status::Ready, 0));
    assert!(health.last_fault.is_some(), "the cause stays readable");
    assert_eq!(bench.core.ledger().len(), 1);
}

#[test]
fn a_fault_that_only_the_engine_counted_degrades_health_too() {
    let mut bench = Bench::serving();
    bench.event(Event::Stats(Stats {
        contained_faults_total: 2,
        ..Stats::default()
    }));
    assert_eq!(bench.core.health().recent_faults, 2);
}

#[test]
fn damaged_pages_degrade_health_for_a_minute_and_are_counted() {
    let mut bench = Bench::serving();
    let damaged = Stats {
        pages_corrupt_total: 2,
        pages_adopted_total: 9,
        ..Stats::default()
    };
    for _report in 0..3 {
        bench.event(Event::Stats(damaged));
    }
    let health = bench.core.health();
    assert_eq!((health.status, health.recent_faults), (Status::Degraded, 1));
    assert!(health.last_fault.unwrap().0.contains("damaged"));
    bench.wait(limits::DEGRADED_MS);
    assert_eq!(bench.core.health().status, Status::Ready);
    let stats = bench.core.snapshot().stats;
    assert_eq!(
        (stats.pages_corrupt_total, stats.pages_adopted_total),
        (2, 9)
    );
}

#[test]
fn usage_is_counted_from_the_ledger_whatever_the_engine_says() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.token(1, 0);
    bench.choice_finished(1, 1);
    let lie = Usage {
        prompt_tokens: 9,
        cached_tokens: 9,
        completion_tokens: 9,
    };
    let actions = bench.event(Event::Finished(relight_protocol::Finished {
        id: RequestId(1),
        usage: lie,
    }));
    let truth = Usage {
        cached_tokens: 2,
        ..usage(1)
    };
    assert_eq!(delivered(&actions), [(1, StreamEvent::Finished(truth))]);
    assert_eq!(bench.core.snapshot().usage_corrections_total, 1);
}

#[test]
fn health_tells_the_age_of_the_last_token() {
    let mut bench = Bench::serving();
    assert_eq!(bench.core.health().last_generation_age, None);
    bench.submit(1);
    bench.accepted(1);
    bench.token(1, 0);
    bench.wait(700);
    let age = bench.core.health().last_generation_age.unwrap();
    assert_eq!(age.as_millis(), 700);
}

#[test]
fn requests_beyond_those_that_may_be_open_are_refused_even_if_the_engine_has_room() {
    let bounds = Bounds {
        open_requests_max: 2,
        ..Bounds::default()
    };
    let mut bench = Bench::serving_within(bounds);
    bench.submit(1);
    bench.submit(2);
    let (resource, _retry_after_s) = overload(&refused(&bench.submit(3)));
    assert_eq!(resource, Overload::QueueFull);
    bench.cancel(1);
    bench.submit(4);
    assert_eq!(bench.core.snapshot().in_flight, 2);
}
