//! The generator rung: what makes a core latch, what it says then, and what is left.

use relight_protocol::limits::LATCHES_IN_A_ROW_MAX;
use relight_protocol::recorder::{Activity, Doing, Lane, Participant};
use relight_protocol::{LatchCause, Latched};

use super::*;
use crate::arena::Recorder;
use crate::fake::FORWARD_US;
use crate::pages::PoolWitness;
use crate::recording::LaneUse;
use crate::report;

fn long_request(random: &mut Seeded) -> Request {
    let mut request = random_request(random, &[TokenId(3)]);
    request.choices = 1;
    request.stop = StopRules {
        max_tokens: Some(250),
        ignore_eos: true,
        ..StopRules::default()
    };
    request
}

/// Two requests that decode, and one that has just come.
fn busy<'a>(language: &'a Language, ledger: &mut Ledger) -> Rig<'a> {
    let mut random = Seeded::new(21);
    let mut rig = Rig::new(language, LARGE);
    for id in 1..=3 {
        let request = long_request(&mut random);
        rig.submit(ledger, RequestId(id), request);
        if id < 3 {
            rig.step(ledger);
        }
    }
    rig
}

fn participant(request: u64, is_new: bool) -> Participant {
    let request = RequestId(request);
    Participant { request, is_new }
}

fn latch(rig: &mut Rig<'_>, ailment: Ailment) -> Latched {
    step_with(rig, ailment).unwrap_err()
}

/// A step on a backend that is not well. One that draws nothing may come through.
pub(super) fn step_with(rig: &mut Rig<'_>, ailment: Ailment) -> Result<(), Latched> {
    rig.core.backend_mut().ailment = Some(ailment);
    let stepped = rig.core.step(Duration::ZERO);
    rig.core.backend_mut().ailment = None;
    stepped
}

#[test]
fn a_step_that_fails_panics_or_gives_no_finite_row_latches_and_names_who_took_part() {
    report::keep_reports_in_tests();
    let language = language();
    for (ailment, cause, report) in [
        (Ailment::Refuses, LatchCause::Failed, "told to fail"),
        (Ailment::Panics, LatchCause::Panicked, "told to panic"),
        (Ailment::PoisonsAll, LatchCause::NonFiniteLogits, "finite"),
    ] {
        let mut ledger = Ledger::default();
        let mut rig = busy(&language, &mut ledger);
        let latched = latch(&mut rig, ailment);
        assert_eq!(latched.cause, cause);
        assert_eq!(
            latched.participants,
            [
                participant(1, false),
                participant(2, false),
                participant(3, true)
            ]
        );
        assert!(latched.report.as_ref().unwrap().contains(report));
        assert_eq!(rig.core.take_events(), [], "nothing of the step gets out");
        // Whoever asks again is told the same.
        assert_eq!(rig.core.step(Duration::ZERO), Err(latched));
    }
}

#[test]
fn a_latched_core_refuses_requests_ignores_the_rest_and_may_be_closed_twice() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    latch(&mut rig, Ailment::Panics);
    let witness = rig.core.scheduler_mut().witness();
    let mut random = Seeded::new(22);
    for _close in 0..2 {
        rig.core.handle(Input::Cancel { id: RequestId(1) });
        rig.core.handle(Input::Submit {
            id: RequestId(9),
            request: Box::new(long_request(&mut random)),
            resume: None,
        });
        let events = rig.core.take_events();
        assert!(
            matches!(
                events.as_slice(),
                [Event::Rejected(Rejected {
                    fault: Fault::EngineUnavailable,
                    ..
                })]
            ),
            "{events:?}"
        );
        assert!(rig.core.take_jobs().is_empty());
        assert!(rig.core.step(Duration::ZERO).is_err());
        rig.core.close();
        assert_eq!(witness.holder_count(), 0);
    }
}

/// Every stream is the undisturbed one although its core latched many times on the way, and
/// pages of failed steps, full of rubbish by then, were around.
#[test]
fn streams_go_on_over_any_number_of_latches() {
    let language = language();
    for seed in 300..310 {
        let mut random = Seeded::new(seed);
        let mut rig = Rig::new(&language, random_size(&mut random));
        let mut ledger = Ledger::default();
        let stem = random_ids(&mut random, 150);
        for id in 1..=8 {
            let request = random_request(&mut random, &stem);
            rig.submit(&mut ledger, RequestId(id), request);
            for _step in 0..random.below(20) {
                if random.one_in(6) && rig.core.has_work() {
                    let ailments = [Ailment::Refuses, Ailment::Panics];
                    latch(&mut rig, ailments[random.below(2)]);
                    rig = rig.renewed(&mut ledger);
                }
                rig.step(&mut ledger);
            }
        }
        rig.run_to_end(&mut ledger);
        for (id, entry) in ledger.entries() {
            let solo = run_alone(&language, &entry.request);
            entry.assert_same(&solo, &format!("seed {seed}, {id}"));
        }
    }
}

#[test]
fn a_core_is_gone_before_its_successor_is_built_and_its_jobs_are_stale() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    rig.core.handle(Input::Submit {
        id: RequestId(4),
        request: Box::new(long_request(&mut Seeded::new(23))),
        resume: None,
    });
    let job = rig.core.take_jobs().pop().unwrap();
    latch(&mut rig, Ailment::Panics);
    let witness = rig.core.scheduler_mut().witness();
    let before = rig.core.stats();
    let mut core = rig.core.renewed().unwrap();
    assert_eq!(witness.holder_count(), 0);
    assert!(job.is_stale.load(Ordering::Relaxed));
    assert_eq!(core.backend_mut().resets, 1);
    let after = core.stats();
    assert_eq!((after.pages_used, after.pages_cached), (0, 0));
    assert_eq!(after.sequences_running + after.sequences_waiting, 0);
    assert_eq!(after.audits_total, before.audits_total + 1);
    assert_eq!(after.steps_total, before.steps_total);
    // The job was done all the same, and the request is there again.
    core.handle(Input::Submit {
        id: RequestId(4),
        request: job.request.clone(),
        resume: None,
    });
    let context = rig::context(&language);
    core.handle(Input::Prepared {
        id: job.id,
        attempt: job.attempt,
        result: crate::prepare::run_job(&context, &job),
    });
    assert_eq!(core.take_events(), [], "the old attempt counts for nothing");
    assert_eq!(core.take_jobs().len(), 1);
}

#[test]
fn a_hundred_latches_leave_no_core_behind_and_no_counter_goes_back() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    let mut witnesses: Vec<PoolWitness> = Vec::new();
    let mut last = rig.core.stats();
    for round in 0..100_u32 {
        rig.step(&mut ledger);
        latch(&mut rig, Ailment::Panics);
        witnesses.push(rig.core.scheduler_mut().witness());
        rig = rig.renewed(&mut ledger);
        let stats = rig.core.stats();
        let counters = |stats: &Stats| {
            [
                stats.steps_total,
                stats.prompt_tokens_total,
                stats.cached_tokens_total,
                stats.generated_tokens_total,
                stats.preemptions_total,
                stats.contained_faults_total,
                stats.audits_total,
            ]
        };
        let grown = counters(&last).into_iter().zip(counters(&stats));
        assert!(grown.clone().all(|(old, new)| old <= new), "round {round}");
        assert!(stats.steps_total > last.steps_total);
        last = stats;
    }
    assert!(witnesses.iter().all(|witness| witness.holder_count() == 0));
    assert_eq!(last.audits_total, 100);
    rig.run_to_end(&mut ledger);
}

/// A new core does not help where no step is ever computed.
#[test]
fn latches_without_a_step_between_them_end_the_process() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    for _latch in 0..LATCHES_IN_A_ROW_MAX {
        latch(&mut rig, Ailment::Refuses);
        rig = rig.renewed(&mut ledger);
    }
    latch(&mut rig, Ailment::Refuses);
    let latches = LATCHES_IN_A_ROW_MAX + 1;
    let refused = rig.core.renewed().unwrap_err();
    assert_eq!(refused, SuccessionError::Incurable { latches });
}

#[test]
fn a_latch_in_planning_implicates_everybody() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    rig.core.scheduler_mut().fail_next_plan();
    let latched = rig.core.step(Duration::ZERO).unwrap_err();
    assert_eq!(latched.cause, LatchCause::Panicked);
    assert_eq!(latched.participants.len(), 3);
}

/// What only one request can have brought about, though it was not its private work.
#[test]
fn a_panic_between_private_work_and_steps_latches_with_one_suspect() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    let id = RequestId(4);
    rig.core.handle(Input::Submit {
        id,
        request: Box::new(long_request(&mut Seeded::new(24))),
        resume: None,
    });
    let job = rig.core.take_jobs().pop().unwrap();
    let context = rig::context(&language);
    let mut prepared = crate::prepare::run_job(&context, &job).unwrap();
    prepared.prompt.clear();
    rig.core.handle(Input::Prepared {
        id,
        attempt: job.attempt,
        result: Ok(prepared),
    });
    assert!(
        rig.core.has_work(),
        "a step must be asked for to hear of it"
    );
    let latched = rig.core.step(Duration::ZERO).unwrap_err();
    assert_eq!(latched.cause, LatchCause::Panicked);
    assert_eq!(latched.participants, [participant(4, true)]);
}

#[test]
fn books_that_do_not_balance_after_a_fault_latch() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    // Somebody keeps what he should have given back.
    let stolen = rig.core.scheduler_mut().steal_page();
    let culprit = RequestId(2);
    planned::clear();
    planned::panic_at(culprit, Phase::Sample, 0);
    let latched = rig.core.step(Duration::ZERO).unwrap_err();
    rig.core.close();
    assert_eq!(latched.cause, LatchCause::AuditFailed);
    assert_eq!(latched.participants, [participant(2, false)]);
    let stats = rig.core.stats();
    assert_eq!((stats.audits_total, stats.audit_failures_total), (1, 1));
    let refused = rig.core.renewed().unwrap_err();
    // A held page is never given out again.
    assert_eq!(refused, SuccessionError::StillHeld { holders: 1 });
    drop(stolen);
}

#[test]
fn every_contained_fault_is_followed_by_an_audit() {
    report::keep_reports_in_tests();
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    planned::clear();
    planned::panic_at(RequestId(1), Phase::Detokenize, 0);
    planned::panic_at(RequestId(2), Phase::Emit, 0);
    rig.core.step(Duration::ZERO).unwrap();
    let reports: Vec<String> = rig
        .core
        .take_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Failed(failed) => failed.report,
            _ => None,
        })
        .collect();
    assert_eq!(reports.len(), 2);
    assert!(reports[0].contains("injected into Detokenize"));
    assert!(reports[1].contains("containment.rs"));
    let stats = rig.core.stats();
    assert_eq!((stats.audits_total, stats.audit_failures_total), (2, 0));
    assert_eq!(stats.contained_faults_total, 2);
}

#[test]
fn a_step_is_recorded_before_it_begins_and_nothing_while_idle() {
    let language = language();
    let recorder = Arc::new(Recorder::open(None).unwrap());
    let lane = LaneUse::new(Arc::clone(&recorder), Lane::Generator);
    let read = || recorder.activity(Lane::Generator);
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    assert_eq!(read().doing, Doing::Idle);
    let steps = read().step;
    rig.core.backend_mut().ailment = Some(Ailment::Panics);
    // The panic leaves the lane as it was in the step.
    rig.core.step(Duration::ZERO).unwrap_err();
    let Activity {
        step,
        predicted_ms,
        doing,
        ..
    } = read();
    assert_eq!(step, steps + 1);
    assert!(predicted_ms >= 500, "nothing was measured");
    let participants = vec![
        participant(1, false),
        participant(2, false),
        participant(3, true),
    ];
    assert_eq!(doing, Doing::Shared { participants });
    drop(lane);
    assert_eq!(read().doing, Doing::Idle);
}

#[test]
fn measured_steps_make_the_prediction() {
    let language = language();
    let recorder = Arc::new(Recorder::open(None).unwrap());
    let _lane = LaneUse::new(Arc::clone(&recorder), Lane::Generator);
    let mut ledger = Ledger::default();
    let mut rig = busy(&language, &mut ledger);
    let mut rest = [0; 3];
    for rest in &mut rest {
        rig.step(&mut ledger);
        rig.core.note_duration(Duration::from_millis(400));
        *rest = rig.core.stats().costs.rest_us;
    }
    // What is not the forward pass's.
    assert_eq!(rest[2] - rest[0], 2 * (400_000 - FORWARD_US));
    // The panic leaves the lane as it was in the step.
    latch(&mut rig, Ailment::Panics);
    let predicted_ms = recorder.activity(Lane::Generator).predicted_ms;
    assert!((400..1000).contains(&predicted_ms), "{predicted_ms}");
}
