//! What every failure must look like, whatever part of the core it goes through.

use relight_protocol::{Fault, FrameError, LatchCause, ModelCard};

use super::bench::{Bench, card, delivered, delta, failures, faults, refused, sent, usage};
use super::*;
use crate::faults::{FaultId, FaultKind};
use crate::health::Status;

const KILLED: Exit = Exit::Signal(9);
const SEGV: Exit = Exit::Signal(11);

/// One request of `count` tokens, with an interruption before its step `at`. Its events.
fn answer(count: u32, at: u32, interrupt: impl Fn(&mut Bench) -> Vec<Action>) -> Vec<StreamEvent> {
    let mut bench = Bench::serving();
    bench.submit(1);
    let mut events = Vec::new();
    for moment in 0..count + 4 {
        if moment == at {
            events.extend(delivered(&interrupt(&mut bench)));
        }
        let Some(entry) = bench.core.ledger().entry(RequestId(1)) else {
            break;
        };
        let next = entry.choices()[0].token_count();
        let actions = if !entry.is_accepted() {
            bench.accepted(1)
        } else if next < count {
            bench.token(1, next)
        } else if entry.is_complete() {
            bench.finished(1, count)
        } else {
            bench.choice_finished(1, count)
        };
        events.extend(delivered(&actions));
    }
    bench.assert_empty();
    events.into_iter().map(|(_id, event)| event).collect()
}

/// An engine dies and the next one is ready.
fn death(bench: &mut Bench) -> Vec<Action> {
    let mut actions = bench.exit(KILLED);
    actions.extend(bench.restart());
    actions
}

#[test]
fn a_kill_or_a_latch_before_any_event_changes_no_event() {
    let undisturbed = answer(5, u32::MAX, death);
    assert_eq!(undisturbed.len(), 8);
    assert_eq!(undisturbed[7], StreamEvent::Finished(usage(5)));
    for at in 0..=8 {
        assert_eq!(answer(5, at, death), undisturbed, "killed at {at}");
        let latch = |bench: &mut Bench| bench.latch(LatchCause::Failed, &[1]);
        assert_eq!(answer(5, at, latch), undisturbed, "latched at {at}");
    }
}

#[test]
fn a_second_kill_during_replay_and_one_during_the_load_change_no_event() {
    let undisturbed = answer(5, u32::MAX, death);
    let twice = |bench: &mut Bench| {
        let mut actions = death(bench);
        // The second engine has said what the first one had said, and no more.
        actions.extend(bench.token(1, 0));
        actions.extend(death(bench));
        actions.extend(bench.exit(KILLED));
        bench.wait(limits::RESTART_BACKOFF_MS_MAX);
        bench.spawned();
        bench.hello();
        actions.extend(death(bench));
        actions
    };
    assert_eq!(answer(5, 3, twice), undisturbed);
}

#[test]
fn one_death_seen_in_many_ways_is_one_restart_and_one_record() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.run(1, 2);
    let dead = bench.engine;
    bench.token(1, 9);
    let broken = |engine| Input::PipeBroken {
        engine,
        error: FrameError::Malformed { found: 3 },
    };
    bench.input(broken(dead));
    bench.exit(KILLED);
    bench.restart();
    bench.token(1, 2);
    bench.submit(2);
    // Late duplicates touch neither the new engine nor what it was given.
    assert_eq!(bench.input(broken(dead)), []);
    for end in [KILLED, SEGV] {
        let end = Box::new(end.into());
        assert_eq!(bench.input(Input::EngineExited { engine: dead, end }), []);
    }
    assert_eq!(bench.core.health().restarts, 1);
    assert_eq!(bench.core.faults().len(), 1);
    assert_eq!(bench.core.snapshot().in_flight, 2);
}

#[test]
fn a_request_that_fails_is_told_so_once_and_never_as_a_finish() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.submit(2);
    bench.run(1, 1);
    let fault = Fault::Internal {
        phase: relight_protocol::Phase::Sample,
    };
    let actions = bench.failed(1, fault.clone());
    let failure = RequestFailure::recorded(fault, FaultId(1));
    assert_eq!(failures(&actions), [(1, failure)]);
    assert_eq!(actions.len(), 1);
    assert_eq!(bench.choice_finished(1, 1), []);
    assert_eq!(bench.finished(1, 1), []);
    // And nobody else: no engine is replaced, no latch is counted.
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.contained.get("sample"), Some(&1));
    assert!(snapshot.restarts.is_empty() && snapshot.latches.is_empty());
    assert_eq!(snapshot.in_flight, 1);
    let records = bench.core.faults();
    assert_eq!(records[0].kind, FaultKind::Contained);
    assert_eq!(records[0].phase, Some("sample"));
    assert!(records[0].is_over);
}

/// Ends request 1 in some way other than its engine's.
type Ending = fn(&mut Bench) -> Vec<Action>;

#[test]
fn no_end_but_the_engines_own_reads_as_success() {
    let other_model = |bench: &mut Bench| {
        bench.exit(KILLED);
        bench.wait(limits::RESTART_BACKOFF_MS_MAX);
        bench.spawned();
        bench.hello();
        bench.event(Event::Ready(Box::new(ModelCard {
            fingerprint: 9,
            ..card()
        })))
    };
    let endings: [Ending; 6] = [
        |bench| bench.cancel(1),
        |bench| bench.input(Input::ReaderTooSlow { id: RequestId(1) }),
        |bench| {
            bench.input(Input::Shutdown { drain_ms: 10 });
            bench.wait(10)
        },
        Bench::exhaust,
        |bench| {
            bench.die_in_step(&[1]);
            bench.restart();
            bench.die_in_step(&[1])
        },
        other_model,
    ];
    for (number, end) in endings.into_iter().enumerate() {
        let mut bench = Bench::serving();
        bench.submit(1);
        bench.run(1, 2);
        let events = delivered(&end(&mut bench));
        assert!(bench.core.ledger().is_empty(), "ending {number}");
        let is_failure = |event: &StreamEvent| matches!(event, StreamEvent::Failed(_));
        assert!(
            events.iter().all(|(_, event)| is_failure(event)),
            "{number}"
        );
        let snapshot = bench.core.snapshot();
        assert!(!snapshot.requests.contains_key("stop"), "ending {number}");
        assert_eq!(events.len(), usize::from(number > 0), "ending {number}");
    }
}

#[test]
fn a_cancel_after_the_end_is_nothing_and_one_before_it_happens_once() {
    let mut bench = Bench::serving();
    for id in [1, 2, 3] {
        bench.submit(id);
        bench.run(id, 1);
    }
    bench.choice_finished(1, 1);
    bench.finished(1, 1);
    bench.failed(2, Fault::OutOfMemory);
    let counted = bench.core.snapshot();
    for id in [1, 2, 77] {
        assert_eq!(bench.cancel(id), []);
    }
    assert_eq!(bench.core.snapshot(), counted);
    // On its way while the engine dies.
    bench.exit(SEGV);
    assert_eq!(bench.cancel(3), []);
    assert_eq!(bench.cancel(3), []);
    assert_eq!(sent(&bench.restart()), []);
    assert_eq!(bench.core.snapshot().requests.get("cancelled"), Some(&1));
    bench.assert_empty();
}

#[test]
fn a_cancel_that_crosses_a_latch_touches_nothing() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.submit(2);
    bench.run(1, 1);
    bench.run(2, 1);
    assert_eq!(bench.cancel(1).len(), 1);
    let actions = bench.latch(LatchCause::Panicked, &[1, 2]);
    assert_eq!(sent(&actions).len(), 1, "only 2 is given again");
    assert_eq!(failures(&actions), []);
    assert_eq!(bench.token(1, 1), []);
    assert!(bench.status().is_ready());
}

#[test]
fn a_wait_that_would_be_too_long_is_refused_at_once() {
    let mut bench = Bench::serving_within(Bounds {
        engine_requests_max: 1,
        queue_age_ms_max: 10_000,
        ..Bounds::default()
    });
    bench.submit(1);
    bench.accepted(1);
    bench.now_ms += 80_000;
    bench.choice_finished(1, 0);
    bench.finished(1, 0);
    // The smoothed time with an engine is 10 s by now.
    assert_eq!(sent(&bench.submit(2)), [(2, None)]);
    assert_eq!(bench.submit(3).len(), 1, "it may just be in time");
    let fault = refused(&bench.submit(4));
    let Fault::Overloaded {
        resource,
        retry_after_s,
    } = fault
    else {
        panic!("{fault:?}");
    };
    assert_eq!(resource, relight_protocol::Overload::QueueTooOld);
    assert_eq!(retry_after_s, limits::RETRY_AFTER_S_MAX);
    assert_eq!(bench.core.snapshot().queue_depth, 1);
    // Without a queue nobody is refused, however slow the engine is.
    bench.cancel(3);
    bench.cancel(2);
    assert_eq!(sent(&bench.submit(5)), [(5, None)]);
}

#[test]
fn the_queue_is_counted_right_however_requests_leave_it() {
    let mut bench = Bench::serving_within(Bounds {
        engine_requests_max: 2,
        ..Bounds::default()
    });
    let depth = |bench: &Bench| bench.core.snapshot().queue_depth;
    for id in 1..=6 {
        bench.submit(id);
    }
    assert_eq!(depth(&bench), 4);
    bench.cancel(5);
    assert_eq!(depth(&bench), 3);
    bench.exit(KILLED);
    assert_eq!(
        depth(&bench),
        3,
        "what had an engine waits, but not in the queue"
    );
    bench.restart();
    bench.cancel(1);
    bench.cancel(2);
    assert_eq!(depth(&bench), 1);
    bench.wait(limits::QUEUE_AGE_MS_MAX);
    assert_eq!(depth(&bench), 0);
    bench.cancel(3);
    bench.cancel(4);
    bench.assert_empty();
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.run(1, 1);
    bench.wait(5000);
    let deadline_ms = bench.core.next_deadline_ms();
    bench.now_ms = 10;
    assert_eq!(bench.input(Input::Tick), []);
    assert_eq!(bench.core.next_deadline_ms(), deadline_ms);
    assert_eq!(
        delivered(&bench.token(1, 1)),
        [(1, StreamEvent::Delta(delta(1, 1)))]
    );
    assert_eq!(faults(&bench.wait(0)), []);
    assert_eq!(bench.status(), Status::Ready);
}

#[test]
fn after_a_fault_health_is_whole_again_and_the_fault_stays_readable() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.run(1, 1);
    bench.exit(SEGV);
    assert_eq!(bench.status(), Status::Recovering);
    bench.restart();
    bench.token(1, 1);
    let health = bench.core.health();
    assert_eq!(health.status, Status::Ready);
    assert!(health.last_fault.unwrap().0.contains("signal 11"));
    let records = bench.core.faults();
    assert!(records[0].is_over && records[0].timeline.resumed_ms.is_some());
}
