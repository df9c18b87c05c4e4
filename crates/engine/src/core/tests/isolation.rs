//! What one request does wrong reaches nobody else and costs no page, slot or core.

use relight_protocol::{FinishReason, Resume};

use super::*;
use crate::fake::Ailment;

const PHASES: [Phase; 5] = [
    Phase::Prepare,
    Phase::Admit,
    Phase::Sample,
    Phase::Detokenize,
    Phase::Emit,
];

const SMALL: RigSize = RigSize {
    pages: 12,
    slots: 4,
    batch_rows: 64,
    chunk_rows: 16,
    drafting: Drafting::Eager,
};

/// As many tokens as fit the context.
fn long_request(random: &mut Seeded, prompt_tokens: usize) -> Request {
    Request {
        prompt: Prompt::Tokens(random_ids(random, prompt_tokens)),
        choices: 1,
        stop: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        ..random_request(random, &[TokenId(3)])
    }
}

/// Four slots, one request that runs as long as it can, and beside it one after the other
/// that fails, in each phase: the long one is whole, and no core was replaced.
#[test]
fn a_long_answer_outlives_failures_beside_it_in_every_phase() {
    let language = language();
    let mut random = Seeded::new(31);
    planned::clear();
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, SMALL);
    let healthy = RequestId(1);
    let request = long_request(&mut random, 9);
    rig.submit(&mut ledger, healthy, request.clone());
    for (id, phase) in (2..).zip(PHASES) {
        let id = RequestId(id);
        planned::panic_at(id, phase, 0);
        let culprit = long_request(&mut random, 40);
        rig.submit(&mut ledger, id, culprit);
        for _step in 0..20 {
            rig.step(&mut ledger);
        }
        let fault = ledger.entry(id).fault().cloned();
        assert_eq!(fault, Some(Fault::Internal { phase }));
        assert_eq!(rig.core.scheduler_mut().stats().running, 1);
    }
    rig.run_to_end(&mut ledger);
    let solo = run_alone(&language, &request);
    ledger.entry(healthy).assert_same(&solo, "the long answer");
    assert_eq!(solo.usage().unwrap().completion_tokens, 320 - 9);
    let stats = rig.stats();
    assert_eq!(stats.contained_faults_total, PHASES.len() as u64);
    assert_eq!(stats.audits_total, PHASES.len() as u64);
    assert_eq!(stats.audit_failures_total, 0);
}

#[test]
fn ten_failures_of_every_kind_per_slot_leave_all_slots_and_pages() {
    let language = language();
    let mut random = Seeded::new(32);
    planned::clear();
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, SMALL);
    let mut id = 0;
    for _round in 0..10 * SMALL.slots {
        for phase in PHASES {
            id += 1;
            planned::panic_at(RequestId(id), phase, 0);
            let prompt_tokens = 1 + random.below(100);
            let request = long_request(&mut random, prompt_tokens);
            rig.submit(&mut ledger, RequestId(id), request);
            rig.step(&mut ledger);
        }
    }
    rig.run_to_end(&mut ledger);
    let stats = rig.stats();
    assert_eq!(stats.contained_faults_total, id);
    assert_eq!(stats.audits_total, id);
    assert_eq!(stats.audit_failures_total, 0);
    assert_eq!((stats.pages_used, stats.sequences_running), (0, 0));
    // All slots can be had at once.
    for id in id + 1..=id + 4 {
        let mut short = long_request(&mut random, 5);
        short.stop.max_tokens = Some(20);
        rig.submit(&mut ledger, RequestId(id), short);
    }
    rig.step(&mut ledger);
    assert_eq!(rig.core.scheduler_mut().stats().running, SMALL.slots);
}

/// One that may go on for ever and has the whole pool, another that must wait for it.
#[test]
fn a_request_that_outgrows_the_pool_ends_with_length() {
    let language = language();
    let mut random = Seeded::new(33);
    let mut ledger = Ledger::default();
    let size = RigSize {
        pages: rig::CONTEXT_PAGES,
        ..SMALL
    };
    let mut rig = Rig::new(&language, size);
    for id in 1..=2 {
        rig.submit(&mut ledger, RequestId(id), long_request(&mut random, 70));
    }
    rig.run_to_end(&mut ledger);
    for (_id, entry) in ledger.entries() {
        assert_eq!(entry.reasons(), [Some(FinishReason::Length)]);
        assert_eq!(entry.usage().unwrap().completion_tokens, 320 - 70);
    }
}

#[test]
fn cancelling_what_has_ended_or_never_was_changes_nothing() {
    let language = language();
    let mut random = Seeded::new(34);
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, SMALL);
    let others = long_request(&mut random, 20);
    rig.submit(&mut ledger, RequestId(1), others.clone());
    let mut short = long_request(&mut random, 20);
    short.stop.max_tokens = Some(2);
    rig.submit(&mut ledger, RequestId(2), short);
    while ledger.entry(RequestId(2)).is_open() {
        rig.step(&mut ledger);
    }
    let before = rig.core.stats();
    for id in [2, 3, 2] {
        rig.core.handle(Input::Cancel { id: RequestId(id) });
        assert_eq!(rig.core.take_events(), []);
    }
    assert_eq!(rig.core.stats(), before);
    rig.run_to_end(&mut ledger);
    let solo = run_alone(&language, &others);
    ledger.entry(RequestId(1)).assert_same(&solo, "the other");
}

/// Whatever the fault, the same prompt afterwards gives what a cold engine gives.
#[test]
fn after_a_fault_the_same_request_gives_what_a_cold_core_gives() {
    let language = language();
    let mut random = Seeded::new(35);
    planned::clear();
    let request = long_request(&mut random, 150);
    let cold = run_alone(&language, &request);
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, SMALL);
    for (id, phase) in (1..).zip(PHASES) {
        planned::panic_at(RequestId(id), phase, 0);
        rig.submit(&mut ledger, RequestId(id), request.clone());
        rig.run_to_end(&mut ledger);
        assert!(ledger.entry(RequestId(id)).fault().is_some());
    }
    // Beside another, so that this is the request's fault alone.
    rig.submit(&mut ledger, RequestId(11), request.clone());
    rig.submit(&mut ledger, RequestId(12), long_request(&mut random, 3));
    for _step in 0..30 {
        rig.step(&mut ledger);
    }
    rig.core.backend_mut().ailment = Some(Ailment::PoisonsRow(0));
    rig.step(&mut ledger);
    rig.core.backend_mut().ailment = None;
    assert!(
        ledger
            .entries()
            .any(|(_id, entry)| entry.fault() == Some(&Fault::NonFiniteLogits))
    );
    rig.submit(&mut ledger, RequestId(20), request);
    rig.run_to_end(&mut ledger);
    ledger.entry(RequestId(20)).assert_same(&cold, "afterwards");
}

#[test]
fn a_request_starts_once_before_its_first_token_and_tells_what_was_there() {
    let language = language();
    let mut random = Seeded::new(36);
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, LARGE);
    let mut request = long_request(&mut random, 150);
    request.choices = 3;
    request.stop.max_tokens = Some(5);
    let started = |events: &[Event]| -> Vec<u32> {
        let starts = events.iter().filter_map(|event| match event {
            Event::Started(started) => Some(started.cached_tokens),
            _ => None,
        });
        starts.collect()
    };
    for (id, cached) in [(1, 0), (2, 128)] {
        rig.submit(&mut ledger, RequestId(id), request.clone());
        let mut events = Vec::new();
        while rig.core.has_work() {
            rig.core.step(Duration::ZERO).unwrap();
            events.extend(rig.core.take_events());
        }
        let counts = started(&events);
        assert_eq!(counts.len(), 1);
        assert!(counts[0] >= cached, "{counts:?}, at least {cached}");
        assert!(matches!(events[0], Event::Started(_)));
    }
}

/// Nothing is computed for it, so it does not start.
#[test]
fn a_request_whose_answers_are_all_known_only_finishes() {
    let language = language();
    let mut random = Seeded::new(37);
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, LARGE);
    let mut request = long_request(&mut random, 10);
    request.stop.max_tokens = Some(3);
    rig.submit(&mut ledger, RequestId(1), request.clone());
    rig.run_to_end(&mut ledger);
    let resume: Option<Resume> = ledger.resume(RequestId(1));
    rig.core.handle(Input::Submit {
        id: RequestId(2),
        request: Box::new(request),
        resume,
    });
    let job = rig.core.take_jobs().pop().unwrap();
    let result = crate::prepare::run_job(&rig::context(&language), &job);
    rig.core.handle(Input::Prepared {
        id: job.id,
        attempt: job.attempt,
        result,
    });
    let events = rig.core.take_events();
    assert!(
        matches!(events.as_slice(), [Event::Finished(_)]),
        "{events:?}"
    );
}
