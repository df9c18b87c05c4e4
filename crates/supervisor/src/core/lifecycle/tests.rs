use relight_protocol::{FrameError, Stats, StepCosts};

use super::super::Input;
use super::super::bench::{Bench, card, delivered, faults, refused, sent};
use super::*;
use crate::config::Bounds;
use crate::health::Status;
use crate::stream::StreamEvent;

const KILLED: Exit = Exit::Signal(9);
const SEGV: Exit = Exit::Signal(11);

#[test]
fn after_a_death_every_request_is_resumed_in_order_before_newer_ones() {
    let mut bench = Bench::serving();
    for id in [1, 2, 3] {
        bench.submit(id);
    }
    bench.accepted(2);
    bench.token(2, 0);
    bench.token(2, 1);
    assert_eq!(bench.exit(KILLED), []);
    assert_eq!(bench.status(), Status::Recovering);
    bench.submit(4);
    let actions = bench.restart();
    let resumed = sent(&actions);
    let ids: Vec<u64> = resumed.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert_eq!(resumed[0].1, None);
    let resume = resumed[1].1.as_ref().unwrap();
    assert_eq!(resume.prompt_tokens.len(), 2);
    assert_eq!(resume.choices[0].tokens.len(), 2);
    assert_eq!(delivered(&bench.token(2, 2)).len(), 1);
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.requests_resumed_total, 3);
    assert_eq!(snapshot.tokens_replayed_total, 4);
    assert_eq!(bench.status(), Status::Ready);
}

#[test]
fn what_a_dead_engine_still_says_is_ignored() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    let dead = bench.engine;
    bench.exit(KILLED);
    bench.restart();
    let late = Input::EngineEvent {
        engine: dead,
        event: Event::LoadFailed(Fault::OutOfMemory),
    };
    assert_eq!(bench.input(late), []);
    let late = Input::EngineExited {
        engine: dead,
        end: Box::new(SEGV.into()),
    };
    assert_eq!(bench.input(late), []);
    assert_eq!(bench.core.health().restarts, 1);
}

#[test]
fn a_request_that_lacked_only_the_last_word_needs_no_other_engine() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.token(1, 0);
    bench.choice_finished(1, 1);
    let actions = bench.exit(SEGV);
    let finished = StreamEvent::Finished(super::super::bench::usage(1));
    assert_eq!(delivered(&actions), [(1, finished)]);
    bench.assert_empty();
}

#[test]
fn bytes_that_are_no_frames_get_the_engine_killed() {
    let mut bench = Bench::serving();
    let engine = bench.engine;
    let broken = Input::PipeBroken {
        engine,
        error: FrameError::Malformed { found: 3 },
    };
    assert_eq!(bench.input(broken), [Action::Kill { engine }]);
    assert_eq!(bench.core.health().restarts, 0, "not before it is reaped");
    bench.exit(KILLED);
    assert_eq!(bench.core.snapshot().restarts.get("ipc"), Some(&1));
}

#[test]
fn no_engine_is_started_before_the_former_one_is_reaped_or_given_up() {
    let mut bench = Bench::serving();
    let engine = bench.engine;
    bench.token(9, 9);
    assert_eq!(bench.wait(limits::ENGINE_EXIT_MS_MAX - 1), []);
    assert_eq!(bench.engine, engine);
    bench.wait(1);
    bench.restart();
    assert_eq!(bench.core.snapshot().restarts.get("protocol"), Some(&1));
}

#[test]
fn an_engine_without_hello_or_progress_is_killed() {
    let mut bench = Bench::started(Bounds::default());
    assert_eq!(bench.wait(limits::HELLO_MS_MAX - 1), []);
    let engine = bench.engine;
    assert_eq!(bench.wait(1), [Action::Kill { engine }]);
    bench.exit(KILLED);
    bench.wait(limits::RESTART_BACKOFF_MS_MIN);
    bench.spawned();
    bench.hello();
    bench.wait(limits::LOAD_SILENCE_MS_MAX - 1);
    bench.event(Event::Loading {
        done_bytes: 1,
        total_bytes: 2,
    });
    assert_eq!(bench.status(), Status::Loading);
    assert_eq!(bench.core.health().loading.unwrap().done_bytes, 1);
    assert_eq!(bench.wait(limits::LOAD_SILENCE_MS_MAX - 1), []);
    let engine = bench.engine;
    assert_eq!(bench.wait(1), [Action::Kill { engine }]);
}

#[test]
fn an_engine_of_another_protocol_gets_no_model_to_load() {
    let mut bench = Bench::started(Bounds::default());
    let engine = bench.engine;
    let actions = bench.event(Event::Hello {
        protocol_version: PROTOCOL_VERSION + 1,
        promise: relight_protocol::Promise::Exact,
    });
    assert_eq!(actions, [Action::Kill { engine }]);
}

#[test]
fn past_the_restart_budget_requests_fail_and_a_probe_that_lives_ends_it() {
    let mut bench = Bench::serving();
    bench.submit(1);
    let actions = bench.exhaust();
    assert_eq!(faults(&actions), [(1, Fault::EngineUnavailable)]);
    assert_eq!(bench.status(), Status::Failed);
    assert_eq!(bench.core.hopeless(), Some(Fault::EngineUnavailable));
    assert_eq!(refused(&bench.submit(2)), Fault::EngineUnavailable);
    bench.wait(limits::RESTART_BACKOFF_MS_MAX);
    bench.spawned();
    assert_eq!(bench.status(), Status::Failed, "a probe proves nothing yet");
    assert_eq!(refused(&bench.submit(3)), Fault::EngineUnavailable);
    bench.exit(KILLED);
    assert_eq!(
        bench.status(),
        Status::Failed,
        "a dead probe changes nothing"
    );
    bench.restart();
    assert_eq!(bench.status(), Status::Ready);
    assert_eq!(bench.core.hopeless(), None);
    assert_eq!(sent(&bench.submit(4)), [(4, None)]);
    bench.exit(KILLED);
    assert_eq!(bench.status(), Status::Recovering, "the budget is whole");
}

#[test]
fn a_model_that_cannot_be_loaded_is_not_tried_again() {
    let mut bench = Bench::started(Bounds::default());
    bench.submit(1);
    bench.hello();
    let fault = Fault::ModelInvalid {
        message: "bad magic".into(),
    };
    let engine = bench.engine;
    let actions = bench.event(Event::LoadFailed(fault.clone()));
    assert_eq!(actions[0], Action::Kill { engine });
    assert_eq!(faults(&actions), [(1, fault.clone())]);
    assert_eq!(bench.exit(KILLED), []);
    assert_eq!(bench.wait(3_600_000), []);
    assert_eq!(refused(&bench.submit(2)), fault);
    let health = bench.core.health();
    assert_eq!((health.status, health.engine_pid), (Status::Failed, None));
    assert!(health.last_fault.unwrap().0.contains("bad magic"));
}

#[test]
fn a_load_that_ran_out_of_memory_is_tried_again() {
    let mut bench = Bench::started(Bounds::default());
    bench.hello();
    let engine = bench.engine;
    let actions = bench.event(Event::LoadFailed(Fault::OutOfMemory));
    assert_eq!(actions, [Action::Kill { engine }]);
    bench.exit(Exit::Code(1));
    bench.restart();
    assert_eq!(bench.status(), Status::Ready);
}

#[test]
fn nothing_continues_on_another_model() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.submit(2);
    bench.accepted(1);
    bench.exit(KILLED);
    bench.wait(limits::RESTART_BACKOFF_MS_MAX);
    bench.spawned();
    bench.hello();
    let other = ModelCard {
        fingerprint: 2,
        ..card()
    };
    let actions = bench.event(Event::Ready(Box::new(other)));
    assert_eq!(faults(&actions), [(1, Fault::EngineUnavailable)]);
    assert_eq!(sent(&actions), [(2, None)]);
}

#[test]
fn counters_add_up_over_engines_and_gauges_do_not() {
    let mut bench = Bench::serving();
    let stats = Stats {
        sequences_running: 3,
        steps_total: 10,
        generated_tokens_total: 5,
        costs: StepCosts {
            attention_us: 40,
            wait_us: 7,
            kv_bytes: 1 << 40,
            ..StepCosts::default()
        },
        ..Stats::default()
    };
    bench.event(Event::Stats(stats));
    bench.exit(KILLED);
    let between = bench.core.snapshot().stats;
    assert_eq!((between.sequences_running, between.steps_total), (0, 10));
    assert_eq!(between.costs, stats.costs);
    bench.restart();
    bench.event(Event::Stats(stats));
    let after = bench.core.snapshot().stats;
    assert_eq!((after.sequences_running, after.steps_total), (3, 20));
    assert_eq!(after.generated_tokens_total, 10);
    assert_eq!(after.costs, stats.costs.plus(&stats.costs));
    assert_eq!(
        (after.costs.attention_us, after.costs.kv_bytes),
        (80, 2 << 40)
    );
}

#[test]
fn a_recovery_lasts_from_the_death_to_the_next_token() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.exit(KILLED);
    bench.restart();
    bench.now_ms += 100;
    bench.token(1, 0);
    let recoveries = bench.core.snapshot().recoveries;
    assert_eq!(recoveries.total_count, 1);
    let expected_s = (limits::RESTART_BACKOFF_MS_MAX + 100) as f64 / 1000.0;
    assert!((recoveries.sum_s - expected_s).abs() < 1e-9);
}

#[test]
fn without_work_a_recovery_lasts_until_an_engine_is_ready() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.exit(KILLED);
    bench.cancel(1);
    bench.restart();
    bench.now_ms += 10_000;
    bench.submit(2);
    bench.accepted(2);
    bench.token(2, 0);
    let recoveries = bench.core.snapshot().recoveries;
    assert_eq!(recoveries.total_count, 1);
    let expected_s = limits::RESTART_BACKOFF_MS_MAX as f64 / 1000.0;
    assert!((recoveries.longest_s - expected_s).abs() < 1e-9);
}
