use relight_protocol::Phase;
use relight_protocol::RequestId;
use relight_protocol::limits::{HANG_FACTOR, HANG_TIMEOUT_MS, SUPERVISOR_TICK_MS};
use relight_protocol::recorder::Doing;

use super::super::bench::{Bench, sent, step};
use super::super::{Action, EngineEnd, Exit};
use super::*;
use crate::health::Status;

/// Looks at every tick until the engine is killed, for at most this long. When it was.
fn killed_after(bench: &mut Bench, lanes: &Lanes, ms_max: u64) -> Option<u64> {
    let since_ms = bench.now_ms;
    let engine = bench.engine;
    while bench.now_ms - since_ms < ms_max {
        bench.wait(SUPERVISOR_TICK_MS);
        if bench.look(lanes) == [Action::Kill { engine }] {
            return Some(bench.now_ms - since_ms);
        }
    }
    None
}

/// A step that should take this long.
fn long_step(predicted_ms: u64) -> Lanes {
    let mut lanes = step(&[1]);
    lanes.generator.predicted_ms = predicted_ms;
    lanes
}

fn working() -> Bench {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.look(&Lanes::default());
    bench
}

#[test]
fn a_step_that_is_predicted_to_take_a_minute_may_take_it() {
    let mut bench = working();
    let lanes = long_step(60_000);
    assert_eq!(killed_after(&mut bench, &lanes, 120_000), None);
    bench.look(&Lanes {
        generator: Activity {
            changes: lanes.generator.changes + 2,
            ..lanes.generator
        },
        ..lanes
    });
    assert_eq!(bench.status(), Status::Ready);
}

#[test]
fn a_stuck_step_is_ended_within_its_limit_and_two_looks() {
    for predicted_ms in [0, 70] {
        let mut bench = working();
        let limit_ms = HANG_TIMEOUT_MS + HANG_FACTOR * predicted_ms;
        let lanes = long_step(predicted_ms);
        let killed_ms = killed_after(&mut bench, &lanes, 60_000).unwrap();
        assert!(killed_ms > limit_ms, "{killed_ms}");
        assert!(
            killed_ms <= limit_ms + 2 * SUPERVISOR_TICK_MS,
            "{killed_ms}"
        );
        bench.exit(Exit::Signal(9));
        assert_eq!(bench.core.snapshot().restarts.get("hang"), Some(&1));
        let faults = bench.core.faults();
        assert_eq!(faults[0].cause, "hang");
        assert!(faults[0].description.contains("step"), "{faults:?}");
    }
}

#[test]
fn a_stuck_preparation_beside_a_busy_generator_is_a_hang() {
    let mut bench = working();
    let mut lanes = step(&[1]);
    lanes.prepare.doing = Doing::Private {
        request: RequestId(2),
        phase: Phase::Prepare,
    };
    let engine = bench.engine;
    let looks = HANG_TIMEOUT_MS / SUPERVISOR_TICK_MS + 2;
    let killed = (0..looks).any(|_| {
        lanes.generator.changes += 2;
        bench.wait(SUPERVISOR_TICK_MS);
        bench.look(&lanes) == [Action::Kill { engine }]
    });
    assert!(killed);
}

#[test]
fn many_short_steps_are_no_hang_however_long_they_take_together() {
    let mut bench = working();
    let mut lanes = step(&[1]);
    for _ in 0..1000 {
        lanes.generator.changes += 2;
        assert_eq!(killed_after(&mut bench, &lanes, 1000), None);
    }
}

#[test]
fn an_engine_that_has_requests_and_neither_works_nor_speaks_is_hung() {
    // Its pipe may be full of commands that it does not read: the same.
    let mut bench = working();
    let idle = Lanes::default();
    let killed_ms = killed_after(&mut bench, &idle, 60_000).unwrap();
    assert!(killed_ms <= HANG_TIMEOUT_MS + 2 * SUPERVISOR_TICK_MS);
    bench.exit_with(EngineEnd {
        lanes: Some(idle),
        ..Exit::Signal(9).into()
    });
    assert_eq!(bench.core.snapshot().suspects, 0);
    assert_eq!(sent(&bench.restart())[0].0, 1);
}

#[test]
fn an_engine_without_work_may_be_idle_for_ever() {
    let mut bench = Bench::serving();
    let idle = Lanes::default();
    assert_eq!(killed_after(&mut bench, &idle, 600_000), None);
    bench.submit(1);
    assert_eq!(killed_after(&mut bench, &idle, HANG_TIMEOUT_MS), None);
    assert!(killed_after(&mut bench, &idle, 1000).is_some());
}

#[test]
fn an_idle_engine_that_speaks_is_not_hung() {
    let mut bench = working();
    for index in 0..20 {
        bench.token(1, index);
        assert_eq!(killed_after(&mut bench, &Lanes::default(), 4000), None);
    }
}

#[test]
fn an_engine_stopped_in_mid_write_is_hung_too() {
    let mut bench = working();
    let mut torn = step(&[1]);
    torn.generator.changes = 7;
    assert!(killed_after(&mut bench, &torn, 60_000).is_some());
    let mut bench = working();
    let mut torn = Lanes::default();
    torn.generator.changes = 7;
    assert!(killed_after(&mut bench, &torn, 60_000).is_some());
}

#[test]
fn a_front_that_could_not_look_blames_nobody_for_it() {
    let mut bench = working();
    let lanes = step(&[1]);
    bench.look(&lanes);
    // Suspended for an hour, or short of time: one look is one look.
    for _ in 0..HANG_TIMEOUT_MS / LOOK_MS_MAX {
        assert_eq!(bench.wait(3_600_000), []);
        assert_eq!(bench.look(&lanes), []);
    }
    assert_ne!(bench.look(&lanes).len() + bench.wait(3_600_000).len(), 1);
    assert_eq!(bench.look(&lanes).len(), 1, "its patience does end");
}

#[test]
fn a_late_look_at_a_former_engine_says_nothing_about_this_one() {
    let mut bench = working();
    let former = bench.engine;
    bench.exit(Exit::Signal(9));
    bench.restart();
    let lanes = Box::new(step(&[1]));
    for _ in 0..100 {
        bench.wait(SUPERVISOR_TICK_MS);
        let looked = super::super::Input::Looked {
            engine: former,
            lanes: lanes.clone(),
        };
        assert_eq!(bench.input(looked), []);
    }
}

#[test]
fn the_timeout_is_the_operators() {
    let mut bench = Bench::serving_within(crate::config::Bounds {
        hang_timeout_ms: 20_000,
        ..crate::config::Bounds::default()
    });
    bench.submit(1);
    bench.look(&Lanes::default());
    let killed_ms = killed_after(&mut bench, &step(&[1]), 60_000).unwrap();
    assert!(killed_ms > 20_000, "{killed_ms}");
}

#[test]
fn ticks_come_while_events_do() {
    let mut bench = working();
    bench.wait(0);
    let due_ms = bench.core.next_deadline_ms();
    for index in 0..10 {
        bench.now_ms += 10;
        bench.token(1, index);
    }
    assert_eq!(bench.core.next_deadline_ms(), due_ms);
}
