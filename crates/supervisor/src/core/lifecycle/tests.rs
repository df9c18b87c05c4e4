use relight_protocol::{FrameError, Stats};

use super::super::Input;
use super::super::bench::{Bench, card, delivered, faults, refused, request, sent};
use super::*;
use crate::config::Bounds;
use crate::health::Status;
use crate::stream::StreamEvent;

const KILLED: Exit = Exit::Signal(9);
const SEGV: Exit = Exit::Signal(11);

/// Shuts down and returns the report, if the core is done.
fn stop(actions: &[Action]) -> Option<DrainReport> {
    let report = |action: &Action| match action {
        Action::Stop { report } => Some(*report),
        _ => None,
    };
    actions.iter().find_map(report)
}

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
        exit: SEGV,
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

/// Engines die until the budget is exhausted. The actions of the last death.
fn exhaust(bench: &mut Bench) -> Vec<Action> {
    for _ in 0..limits::RESTARTS_MAX {
        bench.exit(KILLED);
        let dead = bench.engine;
        bench.wait(bench.core.next_deadline_ms() - bench.now_ms);
        while bench.engine == dead {
            bench.wait(bench.core.next_deadline_ms() - bench.now_ms);
        }
        bench.spawned();
        bench.load();
    }
    bench.exit(KILLED)
}

#[test]
fn past_the_restart_budget_requests_fail_and_a_probe_that_lives_ends_it() {
    let mut bench = Bench::serving();
    bench.submit(1);
    let actions = exhaust(&mut bench);
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
fn a_request_alone_in_two_crashes_at_one_place_is_quarantined() {
    let mut bench = Bench::serving();
    bench.submit_request(1, request("killer"));
    bench.accepted(1);
    bench.token(1, 0);
    assert_eq!(bench.exit(SEGV), []);
    bench.restart();
    let actions = bench.exit(SEGV);
    assert_eq!(faults(&actions), [(1, Fault::EngineCrashed)]);
    let again = bench.submit_request(2, request("killer"));
    assert_eq!(refused(&again), Fault::Quarantined);
    let snapshot = bench.core.snapshot();
    assert_eq!(
        (snapshot.quarantines_total, snapshot.quarantine_hits_total),
        (1, 1)
    );
    bench.restart();
    assert_eq!(bench.submit_request(3, request("innocent")).len(), 2);
    bench.wait(limits::QUARANTINE_MS);
    assert_eq!(bench.submit_request(4, request("killer")).len(), 2);
}

#[test]
fn a_request_that_gets_further_each_time_is_not_blamed() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    for index in 0..4 {
        bench.token(1, index);
        assert_eq!(faults(&bench.exit(SEGV)), []);
        bench.restart();
    }
}

#[test]
fn kills_from_outside_and_deaths_in_company_blame_nobody() {
    let mut bench = Bench::serving();
    bench.submit(1);
    for _ in 0..3 {
        assert_eq!(faults(&bench.exit(KILLED)), []);
        bench.restart();
    }
    bench.submit(2);
    for _ in 0..3 {
        assert_eq!(faults(&bench.exit(SEGV)), []);
        bench.restart();
    }
    assert_eq!(bench.core.snapshot().quarantines_total, 0);
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
        ..Stats::default()
    };
    bench.event(Event::Stats(stats));
    bench.exit(KILLED);
    let between = bench.core.snapshot().stats;
    assert_eq!((between.sequences_running, between.steps_total), (0, 10));
    bench.restart();
    bench.event(Event::Stats(stats));
    let after = bench.core.snapshot().stats;
    assert_eq!((after.sequences_running, after.steps_total), (3, 20));
    assert_eq!(after.generated_tokens_total, 10);
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

#[test]
fn a_drain_finishes_running_work_refuses_new_and_fails_queued() {
    let mut bench = Bench::serving_within(Bounds {
        engine_requests_max: 1,
        ..Bounds::default()
    });
    bench.submit(1);
    bench.submit(2);
    let actions = bench.input(Input::Shutdown { drain_ms: 1000 });
    assert_eq!(faults(&actions).len(), 1);
    assert_eq!(faults(&actions)[0].0, 2);
    assert_eq!(bench.status(), Status::Draining);
    assert!(matches!(
        refused(&bench.submit(3)),
        Fault::Overloaded {
            resource: Overload::Draining,
            ..
        }
    ));
    bench.accepted(1);
    bench.choice_finished(1, 0);
    let actions = bench.finished(1, 0);
    assert!(matches!(
        actions.last(),
        Some(Action::Send {
            command: Command::Shutdown,
            ..
        })
    ));
    let report = stop(&bench.exit(Exit::Code(0))).unwrap();
    assert!(report.clean);
    assert_eq!(bench.status(), Status::Stopped);
}

#[test]
fn a_drain_survives_the_death_of_the_engine() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.input(Input::Shutdown { drain_ms: 60_000 });
    bench.exit(KILLED);
    assert_eq!(sent(&bench.restart()).len(), 1);
    bench.choice_finished(1, 0);
    bench.finished(1, 0);
    assert!(stop(&bench.exit(Exit::Code(0))).unwrap().clean);
}

#[test]
fn at_the_end_of_a_drain_running_work_fails_and_an_engine_that_stays_is_killed() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.input(Input::Shutdown { drain_ms: 1000 });
    let actions = bench.wait(1000);
    assert_eq!(faults(&actions).len(), 1);
    assert_eq!(stop(&actions), None);
    let report = stop(&bench.wait(limits::ENGINE_EXIT_MS_MAX)).unwrap();
    assert_eq!((report.failed, report.clean), (1, false));
}

#[test]
fn a_drain_without_an_engine_ends_at_once() {
    let mut bench = Bench::serving();
    bench.exit(KILLED);
    let actions = bench.input(Input::Shutdown { drain_ms: 1000 });
    assert!(stop(&actions).unwrap().clean);
}

#[test]
fn a_drain_while_loading_does_not_wait_for_the_load() {
    let mut bench = Bench::started(Bounds::default());
    bench.hello();
    let engine = bench.engine;
    let actions = bench.input(Input::Shutdown { drain_ms: 1000 });
    assert_eq!(actions[0], Action::Kill { engine });
    assert!(stop(&actions).unwrap().clean);
}

#[test]
fn requests_lost_to_the_restart_budget_make_a_drain_unclean() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.input(Input::Shutdown {
        drain_ms: 3_600_000,
    });
    let report = stop(&exhaust(&mut bench)).unwrap();
    assert_eq!((report.failed, report.clean), (1, false));
}
