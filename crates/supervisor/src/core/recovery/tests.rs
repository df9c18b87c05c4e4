use std::sync::Arc;

use relight_protocol::{ChoiceIndex, Delta, Event, LatchCause, Phase};

use super::super::bench::{
    Bench, delta, failures, faults, preparing, refused, request, sent, step,
};
use super::super::{Action, EngineEnd, Exit};
use super::*;
use crate::faults::FaultRecord;
use crate::health::Status;

const KILLED: Exit = Exit::Signal(9);
const SEGV: Exit = Exit::Signal(11);

/// The ids that an engine is given.
fn given(actions: &[Action]) -> Vec<u64> {
    sent(actions).into_iter().map(|(id, _)| id).collect()
}

/// Requests 1 to `count`, each with three tokens.
fn running(count: u64) -> Bench {
    let mut bench = Bench::serving();
    for id in 1..=count {
        bench.submit(id);
        bench.run(id, 3);
    }
    bench
}

fn record(bench: &mut Bench, id: u64) -> Arc<FaultRecord> {
    let records = bench.core.faults();
    let found = records.iter().find(|record| record.id == FaultId(id));
    Arc::clone(found.unwrap())
}

/// An engine that dies whenever `poisons` are in its steps, until nobody is under suspicion.
/// What requests failed, and how often it died.
fn settle(bench: &mut Bench, poisons: &[u64]) -> (Vec<(u64, Fault)>, u32) {
    let mut aboard: Vec<u64> = Vec::new();
    let mut tokens = [3_u32; 100];
    let (mut failed, mut deaths) = (Vec::new(), 1);
    aboard.extend(given(&bench.restart()));
    while let Some(id) = aboard.iter().copied().find(|id| {
        let entry = bench.core.ledger().entry(RequestId(*id));
        entry.is_some_and(|entry| entry.suspicion.is_some())
    }) {
        if poisons.iter().any(|poison| aboard.contains(poison)) {
            failed.extend(faults(&bench.die_in_step(&aboard)));
            deaths += 1;
            aboard = given(&bench.restart());
        } else {
            let index = usize::try_from(id).unwrap();
            aboard.extend(given(&bench.token(id, tokens[index])));
            tokens[index] += 1;
        }
    }
    (failed, deaths)
}

#[test]
fn a_killer_in_a_mixed_batch_costs_two_deaths_and_only_itself() {
    for poison in 1..=8 {
        let mut bench = running(8);
        bench.die_in_step(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bench.core.snapshot().suspects, 8);
        let (failed, deaths) = settle(&mut bench, &[poison]);
        assert_eq!(failed, [(poison, Fault::EngineCrashed)]);
        assert_eq!(deaths, 2);
        let snapshot = bench.core.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.suspects), (7, 0));
        assert_eq!(snapshot.quarantines_total, 1);
    }
}

#[test]
fn two_killers_cost_a_death_each_and_one_together() {
    let mut bench = running(8);
    bench.die_in_step(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let (failed, deaths) = settle(&mut bench, &[3, 6]);
    let guilty = Fault::EngineCrashed;
    assert_eq!(failed, [(3, guilty.clone()), (6, guilty)]);
    assert_eq!(deaths, 3);
    assert_eq!(bench.core.snapshot().in_flight, 6);
}

#[test]
fn innocents_resume_at_once_and_suspects_one_at_a_time_newcomers_first() {
    let mut bench = running(4);
    // Accepted, but without a token: a newcomer.
    bench.submit(5);
    bench.accepted(5);
    bench.die_in_step(&[2, 4, 5]);
    assert_eq!(given(&bench.restart()), [1, 3, 5]);
    assert_eq!(
        given(&bench.token(1, 3)),
        [],
        "another's token clears nobody"
    );
    assert_eq!(given(&bench.token(5, 0)), [2]);
    assert_eq!(given(&bench.token(2, 3)), [4]);
    assert_eq!(bench.core.snapshot().suspects, 1);
    assert_eq!(given(&bench.token(4, 3)), []);
    assert_eq!(bench.core.snapshot().suspects, 0);
}

#[test]
fn an_innocent_admitted_in_the_same_step_is_cleared_by_its_first_token() {
    let mut bench = running(1);
    bench.submit(2);
    bench.accepted(2);
    bench.die_in_step(&[1, 2]);
    assert_eq!(given(&bench.restart()), [2]);
    assert_eq!(given(&bench.token(2, 0)), [1]);
    let actions = bench.die_in_step(&[1, 2]);
    assert_eq!(faults(&actions), [(1, Fault::EngineCrashed)]);
}

#[test]
fn what_has_proved_nothing_waits_while_there_are_suspects() {
    let mut bench = running(2);
    bench.submit(3);
    bench.die_in_step(&[1]);
    assert_eq!(given(&bench.submit(4)), []);
    assert_eq!(given(&bench.restart()), [2, 1], "3 has no token yet");
    assert_eq!(given(&bench.submit(5)), []);
    assert_eq!(given(&bench.token(1, 3)), [3, 4, 5]);
}

#[test]
fn a_killer_in_the_preparation_costs_two_deaths_beside_a_running_step() {
    let mut bench = running(2);
    bench.submit(3);
    bench.die_at(preparing(3, step(&[1, 2])));
    assert_eq!(given(&bench.restart()), [3], "the newcomer is tried first");
    let actions = bench.die_at(preparing(3, step(&[])));
    assert_eq!(faults(&actions), [(3, Fault::EngineCrashed)]);
    assert_eq!(settle(&mut bench, &[]), (Vec::new(), 1));
    assert_eq!(bench.core.snapshot().in_flight, 2);
}

#[test]
fn a_private_phase_has_one_suspect() {
    let mut bench = running(2);
    let mut lanes = step(&[]);
    lanes.generator.doing = Doing::Private {
        request: RequestId(2),
        phase: Phase::Sample,
    };
    bench.die_at(lanes.clone());
    assert_eq!(record(&mut bench, 1).suspects, [RequestId(2)]);
    assert_eq!(record(&mut bench, 1).phase, Some("sample"));
    assert_eq!(given(&bench.restart()), [1, 2]);
    assert_eq!(faults(&bench.die_at(lanes)), [(2, Fault::EngineCrashed)]);
}

#[test]
fn a_torn_or_missing_record_puts_everybody_under_suspicion() {
    let mut torn = step(&[1]);
    torn.generator.changes = 3;
    for lanes in [Some(torn), None] {
        let mut bench = running(3);
        bench.exit_with(EngineEnd {
            lanes,
            ..SEGV.into()
        });
        assert_eq!(bench.core.snapshot().suspects, 3);
        let (failed, deaths) = settle(&mut bench, &[2]);
        assert_eq!(failed, [(2, Fault::EngineCrashed)]);
        assert_eq!(deaths, 2);
    }
}

#[test]
fn a_death_while_idle_blames_nobody() {
    let mut bench = running(2);
    for _ in 0..3 {
        assert_eq!(faults(&bench.die_at(Lanes::default())), []);
        assert_eq!(bench.core.snapshot().suspects, 0);
        assert_eq!(given(&bench.restart()), [1, 2]);
    }
}

#[test]
fn kills_from_outside_blame_nobody_at_any_point() {
    let mut bench = running(2);
    let outside = || EngineEnd {
        lanes: Some(step(&[1, 2])),
        ..KILLED.into()
    };
    bench.exit_with(outside());
    assert_eq!(bench.core.snapshot().suspects, 0);
    bench.restart();
    bench.die_in_step(&[1, 2]);
    // Again and again while 1 is on trial.
    for _ in 0..3 {
        assert_eq!(given(&bench.restart()), [1]);
        assert_eq!(faults(&bench.exit_with(outside())), []);
        assert_eq!(bench.core.snapshot().suspects, 2);
    }
    bench.restart();
    assert_eq!(given(&bench.token(1, 3)), [2]);
}

#[test]
fn a_trial_that_its_client_cancels_lets_the_next_suspect_run() {
    let mut bench = running(2);
    bench.die_in_step(&[1, 2]);
    assert_eq!(given(&bench.restart()), [1]);
    assert_eq!(given(&bench.cancel(1)), [2]);
    bench.cancel(2);
    bench.assert_empty();
    assert_eq!(bench.core.snapshot().suspects, 0);
    assert_eq!(given(&bench.submit(3)), [3]);
}

#[test]
fn a_suspect_that_finishes_is_cleared() {
    let mut bench = running(2);
    bench.die_in_step(&[1, 2]);
    bench.restart();
    bench.choice_finished(1, 3);
    assert_eq!(given(&bench.finished(1, 3)), [2]);
    assert_eq!(bench.core.snapshot().suspects, 1);
}

#[test]
fn a_death_in_which_the_one_on_trial_took_no_part_convicts_nobody() {
    let mut bench = running(3);
    bench.die_in_step(&[1, 2]);
    assert_eq!(given(&bench.restart()), [3, 1]);
    assert_eq!(faults(&bench.die_in_step(&[3])), []);
    assert_eq!(bench.core.snapshot().suspects, 3);
    let (failed, deaths) = settle(&mut bench, &[3]);
    assert_eq!(failed, [(3, Fault::EngineCrashed)]);
    assert_eq!(deaths, 2, "two with it in the step in all");
}

#[test]
fn a_request_that_gets_further_each_time_is_not_blamed() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    for index in 0..4 {
        bench.token(1, index);
        assert_eq!(faults(&bench.die_in_step(&[1])), []);
        bench.restart();
    }
}

/// The choice that kills stands where it stood, whatever becomes of the others.
#[test]
fn the_progress_of_other_choices_clears_nobody() {
    let mut bench = Bench::serving();
    let mut two = request("two");
    two.choices = 2;
    bench.submit_request(1, two);
    bench.run(1, 3);
    let other = |index| {
        let choice = ChoiceIndex(1);
        let delta = delta(1, index);
        Event::Delta(Delta { choice, ..delta })
    };
    bench.event(other(0));
    assert_eq!(faults(&bench.die_in_step(&[1])), []);
    bench.restart();
    bench.event(other(1));
    bench.event(other(2));
    let failed = faults(&bench.die_in_step(&[1]));
    assert_eq!(failed, [(1, Fault::EngineCrashed)]);
}

/// As clients do whose time limit is shorter than the watchdog's.
#[test]
fn hanging_up_and_sending_it_again_is_no_way_out() {
    let mut bench = Bench::serving();
    bench.submit_request(1, request("poison"));
    bench.run(1, 2);
    bench.cancel(1);
    bench.submit_request(2, request("poison"));
    assert_eq!(faults(&bench.die_in_step(&[1])), []);
    bench.submit(3);
    assert_eq!(given(&bench.restart()), [2], "the same once more, alone");
    bench.run(2, 2);
    let actions = bench.die_in_step(&[2]);
    assert_eq!(faults(&actions), [(2, Fault::EngineCrashed)]);
    let again = bench.submit_request(4, request("poison"));
    assert_eq!(refused(&again), Fault::Quarantined);
}

/// A recalled suspect must come as far as it was; others must not wait all that time.
#[test]
fn a_long_trial_holds_others_back_until_its_first_token_only() {
    let mut bench = running(1);
    bench.die_in_step(&[1]);
    bench.cancel(1);
    bench.restart();
    assert_eq!(given(&bench.submit_request(2, request("1"))), [2]);
    assert_eq!(given(&bench.submit(3)), []);
    bench.accepted(2);
    assert_eq!(given(&bench.token(2, 0)), [3]);
    assert_eq!(given(&bench.submit(4)), [4]);
    assert_eq!(bench.core.snapshot().suspects, 1, "2 stood at three tokens");
    for index in 1..4 {
        bench.token(2, index);
    }
    assert_eq!(bench.core.snapshot().suspects, 0);
}

#[test]
fn beside_a_newcomer_nobody_is_convicted() {
    let mut bench = running(1);
    bench.die_in_step(&[1]);
    bench.cancel(1);
    bench.restart();
    bench.submit_request(2, request("1"));
    bench.run(2, 1);
    bench.submit(3);
    bench.accepted(3);
    assert_eq!(faults(&bench.die_in_step(&[2, 3])), []);
    assert_eq!(bench.core.snapshot().suspects, 2);
    assert_eq!(given(&bench.restart()), [3], "the newcomer is tried first");
    let actions = bench.die_in_step(&[3]);
    assert_eq!(faults(&actions), [(3, Fault::EngineCrashed)]);
    assert_eq!(given(&bench.restart()), [2]);
}

#[test]
fn hanging_up_before_the_verdict_does_not_prevent_it() {
    let mut bench = running(1);
    assert_eq!(faults(&bench.die_in_step(&[1])), []);
    bench.restart();
    bench.cancel(1);
    bench.die_in_step(&[1]);
    let again = bench.submit_request(2, request("1"));
    assert_eq!(refused(&again), Fault::Quarantined);
}

#[test]
fn a_suspect_that_hung_up_is_cleared_by_its_next_attempt() {
    let mut bench = running(1);
    bench.die_in_step(&[1]);
    bench.cancel(1);
    bench.restart();
    bench.submit_request(2, request("1"));
    bench.run(2, 4);
    assert_eq!(faults(&bench.die_in_step(&[2])), []);
}

#[test]
fn the_guilty_are_told_and_refused_for_a_while_whoever_sends_them() {
    let mut bench = Bench::serving();
    bench.submit_request(1, request("killer"));
    bench.submit_request(2, request("killer"));
    bench.run(1, 1);
    bench.die_in_step(&[1]);
    bench.restart();
    let actions = bench.die_in_step(&[1]);
    let guilty = |fault| RequestFailure {
        fault,
        guilty: true,
        fault_id: Some(FaultId(3)),
    };
    let expected = [
        (1, guilty(Fault::EngineCrashed)),
        (2, guilty(Fault::Quarantined)),
    ];
    assert_eq!(failures(&actions), expected);
    let verdict = record(&mut bench, 3);
    assert_eq!(verdict.kind, FaultKind::Quarantine);
    assert_eq!(verdict.suspects, [RequestId(1)]);
    let again = bench.submit_request(3, request("killer"));
    let refusal = [Action::Refuse {
        id: RequestId(3),
        failure: guilty(Fault::Quarantined),
    }];
    assert_eq!(again, refusal);
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.quarantines_total, 1);
    assert_eq!(snapshot.quarantine_hits_total, 1);
    bench.restart();
    assert_eq!(given(&bench.submit_request(4, request("innocent"))), [4]);
    bench.wait(limits::QUARANTINE_MS);
    assert_eq!(given(&bench.submit_request(5, request("killer"))), [5]);
}

#[test]
fn a_lifted_quarantine_lets_the_request_in_again() {
    let mut bench = Bench::serving();
    for _ in 0..2 {
        bench.submit_request(1, request("killer"));
        bench.die_in_step(&[1]);
        bench.restart();
    }
    let again = bench.submit_request(3, request("killer"));
    assert_eq!(refused(&again), Fault::Quarantined);
    let sentences = bench.core.sentences();
    assert_eq!(sentences.len(), 1);
    assert_eq!(bench.core.lift(Some(sentences[0].hash ^ 1)), 0);
    assert_eq!(bench.core.lift(Some(sentences[0].hash)), 1);
    assert_eq!(given(&bench.submit_request(4, request("killer"))), [4]);
}

#[test]
fn a_kill_for_want_of_memory_implicates_work_and_lowers_admission() {
    let mut bench = running(4);
    bench.exit_with(EngineEnd {
        exit: KILLED,
        lanes: Some(step(&[1, 2, 3, 4])),
        was_oom_killed: true,
    });
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.restarts.get("oom"), Some(&1));
    assert_eq!((snapshot.suspects, snapshot.in_flight_max), (4, 2));
    assert_eq!(given(&bench.restart()), [1]);
    assert_eq!(given(&bench.token(1, 3)), [2]);
    assert_eq!(given(&bench.token(2, 3)), [], "two are enough");
    bench.wait(limits::ADMISSION_RAISE_MS);
    assert_eq!(bench.core.snapshot().in_flight_max, 3);
    assert_eq!(bench.core.snapshot().in_flight, 3);
}

#[test]
fn an_engine_that_was_killed_by_us_meanwhile_was_not_killed_for_want_of_memory() {
    let mut bench = running(2);
    bench.token(1, 9);
    bench.exit_with(EngineEnd {
        was_oom_killed: true,
        ..KILLED.into()
    });
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.restarts.get("protocol"), Some(&1));
    assert!(snapshot.in_flight_max > 2);
}

#[test]
fn a_latch_is_a_death_without_the_process() {
    let mut bench = running(3);
    let actions = bench.latch(LatchCause::Panicked, &[1, 2]);
    assert_eq!(given(&actions), [3, 1]);
    let held_back = [Action::Send {
        engine: bench.engine,
        command: Command::Cancel { id: RequestId(2) },
    }];
    assert_eq!(actions[2..], held_back);
    let resumed = sent(&actions);
    assert_eq!(resumed[0].1.as_ref().unwrap().choices[0].tokens.len(), 3);
    assert_eq!(given(&bench.token(1, 3)), [2]);
    let health = bench.core.health();
    assert_eq!((health.status, health.restarts), (Status::Degraded, 0));
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.latches.get("panic"), Some(&1));
    assert_eq!(snapshot.requests_resumed_total, 3);
}

#[test]
fn a_latch_is_recorded_once_however_many_requests_it_hits() {
    let mut bench = running(8);
    bench.latch(LatchCause::Failed, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bench.core.faults().len(), 1);
    assert_eq!(bench.core.health().recent_faults, 1);
    assert_eq!(bench.core.health().contained_faults, 1);
    let latch = record(&mut bench, 1);
    assert_eq!((latch.kind, latch.cause), (FaultKind::Latch, "failed"));
    assert_eq!(latch.report.as_deref(), Some("at step"));
    assert_eq!((latch.requests_resumed, latch.requests_failed), (8, 0));
    assert_eq!(latch.timeline.engine_up_ms, Some(0));
    bench.wait(limits::DEGRADED_MS);
    assert_eq!(bench.status(), Status::Ready);
}

#[test]
fn a_killer_of_generators_is_found_without_a_dead_process() {
    let mut bench = running(2);
    assert_eq!(given(&bench.latch(LatchCause::Panicked, &[1, 2])), [1]);
    assert_eq!(given(&bench.token(1, 3)), [2]);
    let actions = bench.latch(LatchCause::Panicked, &[1, 2]);
    assert_eq!(faults(&actions), [(2, Fault::EngineCrashed)]);
    assert_eq!(given(&actions), [1]);
    assert_eq!(bench.core.health().restarts, 0);
}

#[test]
fn numbers_that_are_not_finite_for_all_are_told_as_such() {
    let mut bench = running(1);
    bench.latch(LatchCause::NonFiniteLogits, &[1]);
    let actions = bench.latch(LatchCause::NonFiniteLogits, &[1]);
    assert_eq!(faults(&actions), [(1, Fault::NonFiniteLogits)]);
    assert!(failures(&actions)[0].1.guilty);
}

#[test]
fn what_the_old_generator_still_says_is_ignored() {
    let mut bench = running(3);
    bench.latch(LatchCause::Failed, &[1, 2]);
    // 2 is held back; its old attempt was on its way.
    assert_eq!(bench.token(2, 3), []);
    assert_eq!(bench.status(), Status::Degraded);
    // 3 was sent again at once, and comes to the same.
    assert_eq!(bench.token(3, 2), []);
    assert_eq!(bench.token(3, 3).len(), 1);
}

#[test]
fn latches_past_the_restart_budget_fail_the_model() {
    let mut bench = running(1);
    for (index, _latch) in (3..).zip(0..limits::RESTARTS_MAX) {
        assert_eq!(faults(&bench.latch(LatchCause::AuditFailed, &[1])), []);
        bench.token(1, index);
    }
    let engine = bench.engine;
    let actions = bench.latch(LatchCause::AuditFailed, &[1]);
    assert_eq!(faults(&actions), [(1, Fault::EngineUnavailable)]);
    assert_eq!(actions.last(), Some(&Action::Kill { engine }));
    bench.exit(KILLED);
    assert_eq!(bench.status(), Status::Failed);
    assert_eq!(refused(&bench.submit(2)), Fault::EngineUnavailable);
    bench.restart();
    assert!(bench.status().is_ready(), "a probe that lives ends it");
}

#[test]
fn a_resumed_request_reports_the_usage_of_the_undisturbed_run() {
    let mut bench = Bench::serving();
    bench.submit(1);
    bench.accepted(1);
    bench.started_with(1, 1);
    bench.token(1, 0);
    bench.exit(KILLED);
    bench.restart();
    bench.started_with(1, 2);
    bench.token(1, 1);
    bench.choice_finished(1, 2);
    let actions = bench.finished(1, 2);
    let expected = relight_protocol::Usage {
        prompt_tokens: 2,
        cached_tokens: 1,
        completion_tokens: 2,
    };
    let finished = crate::stream::StreamEvent::Finished(expected);
    assert_eq!(super::super::bench::delivered(&actions), [(1, finished)]);
    assert_eq!(bench.core.snapshot().usage_corrections_total, 0);
}

#[test]
fn the_record_of_a_death_is_completed_as_things_happen() {
    let mut bench = running(2);
    bench.now_ms += 50;
    bench.die_in_step(&[2]);
    let death = record(&mut bench, 1);
    assert_eq!(
        (death.kind, death.cause),
        (FaultKind::EngineDeath, "signal")
    );
    assert_eq!((death.engine, death.phase), (1, Some("step")));
    assert_eq!(death.suspects, [RequestId(2)]);
    assert_eq!((death.requests_resumed, death.requests_failed), (2, 0));
    assert_eq!(death.unix_ms, 50);
    let timeline = death.timeline;
    assert_eq!(timeline.contained_ms, Some(0));
    assert_eq!((timeline.engine_up_ms, timeline.resumed_ms), (None, None));
    bench.restart();
    bench.now_ms += 30;
    bench.token(1, 3);
    let timeline = record(&mut bench, 1).timeline;
    let up_ms = limits::RESTART_BACKOFF_MS_MAX;
    assert_eq!(timeline.engine_up_ms, Some(up_ms));
    assert_eq!(timeline.resumed_ms, Some(up_ms + 30));
}

#[test]
fn a_lie_has_one_record_from_its_detection_to_the_next_token() {
    let mut bench = running(1);
    bench.token(1, 9);
    let lie = record(&mut bench, 1);
    assert_eq!(lie.kind, FaultKind::ProtocolViolation);
    assert_eq!(lie.timeline.contained_ms, None);
    bench.now_ms += 7;
    bench.exit(KILLED);
    assert_eq!(record(&mut bench, 1).timeline.contained_ms, Some(7));
    assert_eq!(bench.core.faults().len(), 1);
}

#[test]
fn requests_lost_to_the_restart_budget_name_the_death_that_exhausted_it() {
    let mut bench = running(1);
    let actions = bench.exhaust();
    let last = FaultId(limits::RESTARTS_MAX as u64 + 1);
    let failure = RequestFailure::recorded(Fault::EngineUnavailable, last);
    assert_eq!(failures(&actions), [(1, failure)]);
    assert_eq!(record(&mut bench, last.0).requests_failed, 1);
}
