use relight_protocol::Fault;

use super::super::bench::{Bench, faults, refused, sent};
use super::super::{Exit, Input};
use super::*;
use crate::config::Bounds;
use crate::health::Status;

const KILLED: Exit = Exit::Signal(9);

/// Shuts down and returns the report, if the core is done.
fn stop(actions: &[Action]) -> Option<DrainReport> {
    let report = |action: &Action| match action {
        Action::Stop { report } => Some(*report),
        _ => None,
    };
    actions.iter().find_map(report)
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
    let report = stop(&bench.exhaust()).unwrap();
    assert_eq!((report.failed, report.clean), (1, false));
}
