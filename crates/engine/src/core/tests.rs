//! The core under random schedules on the fake backend.

mod adoption;
mod isolation;
mod latches;
mod record;
mod rig;
mod speculation;

use std::collections::BTreeMap;

use record::Ledger;
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{Fault, Phase, Prompt, Request, RequestId, Sampling, StopRules, TokenId};
use rig::{Rig, RigSize, run_alone};

use super::*;
use crate::containment::planned;
use crate::fake::Ailment;
use crate::language::Language;
use crate::scheduler::Drafting;
use crate::seeded::Seeded;
use crate::test_vocabulary::{self, NOTABLE_TOKENS, language};

const LARGE: RigSize = RigSize {
    pages: 200,
    slots: 8,
    batch_rows: 512,
    chunk_rows: 512,
    drafting: Drafting::Never,
};

fn random_size(random: &mut Seeded) -> RigSize {
    RigSize {
        // Never less than the context that all of these tests use.
        pages: rig::CONTEXT_PAGES + u32::try_from(random.below(12)).unwrap(),
        slots: 1 + random.below(5),
        batch_rows: 1 + random.below(80),
        chunk_rows: [1, 7, 64, 512][random.below(4)],
        drafting: [Drafting::Never, Drafting::Adaptive, Drafting::Eager][random.below(3)],
    }
}

fn random_ids(random: &mut Seeded, count: usize) -> Vec<TokenId> {
    let size = test_vocabulary::SIZE;
    (0..count)
        .map(|_index| TokenId(u32::try_from(random.below(size)).unwrap()))
        .collect()
}

/// Requests that share prefixes, with all the features whose state must be rebuilt.
fn random_request(random: &mut Seeded, stem: &[TokenId]) -> Request {
    let mut prompt = stem[..random.below(stem.len())].to_vec();
    let own = 1 + random.below(20);
    prompt.extend(random_ids(random, own));
    let maybe = |random: &mut Seeded, value: f32| if random.one_in(3) { value } else { 0.0 };
    Request {
        prompt: Prompt::Tokens(prompt),
        choices: [1, 1, 1, 3][random.below(4)],
        sampling: Sampling {
            temperature: maybe(random, 0.8),
            repetition_penalty: if random.one_in(3) { 1.2 } else { 1.0 },
            frequency_penalty: maybe(random, 0.5),
            presence_penalty: maybe(random, 0.5),
            logit_bias: NOTABLE_TOKENS
                .iter()
                .map(|token| (TokenId(*token), 4.0))
                .collect(),
            seed: random.next(),
            ..Sampling::default()
        },
        stop: StopRules {
            max_tokens: [None, Some(1), Some(9), Some(60)][random.below(4)],
            min_tokens: [0, 0, 5][random.below(3)],
            ignore_eos: random.one_in(3),
            strings: [&[][..], &["ab"], &["bba", "éa"]][random.below(3)]
                .iter()
                .map(|text| (*text).to_owned())
                .collect(),
            token_ids: if random.one_in(5) {
                vec![TokenId(NOTABLE_TOKENS[0])]
            } else {
                Vec::new()
            },
            include_stop: random.one_in(4),
        },
        logprobs: [None, Some(0), Some(2)][random.below(3)],
        echo: random.one_in(4),
    }
}

/// What goes wrong in a schedule.
#[derive(Clone, Copy)]
struct Weather {
    cancels: bool,
    kills: bool,
    panics: bool,
}

/// Runs a random schedule and checks every request that ended against its solo run.
fn run_schedule(language: &Language, seed: u64, weather: Weather) {
    let mut random = Seeded::new(seed);
    planned::clear();
    let size = random_size(&mut random);
    let mut rig = Rig::new(language, size);
    let mut ledger = Ledger::default();
    let stem = random_ids(&mut random, 150);
    let mut culprits = BTreeMap::new();
    for id in 1..=12 {
        let id = RequestId(id);
        let request = random_request(&mut random, &stem);
        if weather.panics && random.one_in(3) {
            let phases = [
                Phase::Prepare,
                Phase::Sample,
                Phase::Detokenize,
                Phase::Emit,
            ];
            let phase = phases[random.below(4)];
            culprits.insert(id, phase);
            let skip = if phase == Phase::Prepare {
                0
            } else {
                random.below(10)
            };
            planned::panic_at(id, phase, u32::try_from(skip).unwrap());
        }
        rig.submit(&mut ledger, id, request);
        for _step in 0..random.below(25) {
            disturb(&mut rig, &mut ledger, &mut random, weather);
            rig.step(&mut ledger);
        }
    }
    rig.run_to_end(&mut ledger);
    planned::clear();
    for (id, entry) in ledger.entries() {
        let solo = run_alone(language, &entry.request);
        match entry.fault() {
            Some(fault) => {
                let phase = culprits.get(id).copied();
                assert_eq!(
                    Some(fault),
                    phase.map(|phase| Fault::Internal { phase }).as_ref(),
                    "seed {seed}, {id}"
                );
                entry.assert_prefix_of(&solo);
            }
            None => entry.assert_same(&solo, &format!("seed {seed}, {id}")),
        }
    }
}

fn disturb(rig: &mut Rig<'_>, ledger: &mut Ledger, random: &mut Seeded, weather: Weather) {
    if random.one_in(4) {
        rig.preempt_one(random);
    }
    if weather.cancels && random.one_in(15) {
        rig.cancel_one(ledger, random);
    }
    if weather.kills && random.one_in(15) {
        rig.kill_during_step(ledger, random);
    }
}

#[test]
fn schedules_do_not_change_streams() {
    let language = language();
    for seed in 0..40 {
        run_schedule(
            &language,
            seed,
            Weather {
                cancels: true,
                kills: false,
                panics: false,
            },
        );
    }
}

#[test]
fn killed_engines_lose_nothing() {
    let language = language();
    for seed in 100..140 {
        run_schedule(
            &language,
            seed,
            Weather {
                cancels: true,
                kills: true,
                panics: false,
            },
        );
    }
}

#[test]
fn a_panic_in_private_work_ends_its_request_only() {
    let language = language();
    for seed in 200..240 {
        run_schedule(
            &language,
            seed,
            Weather {
                cancels: true,
                kills: false,
                panics: true,
            },
        );
    }
}

/// Kill after every event of one request's stream.
#[test]
fn a_stream_resumes_after_any_of_its_events() {
    let language = language();
    let mut random = Seeded::new(9);
    for round in 0..12 {
        let stem = random_ids(&mut random, 100);
        let mut request = random_request(&mut random, &stem);
        request.stop.max_tokens = Some(12);
        let solo = run_alone(&language, &request);
        for cut in 0..=solo.event_count() {
            let mut ledger = Ledger::default();
            let id = RequestId(1);
            let drafting = [Drafting::Never, Drafting::Eager][round % 2];
            let mut rig = Rig::new(&language, RigSize { drafting, ..LARGE });
            rig.submit(&mut ledger, id, request.clone());
            rig.run_until_events(&mut ledger, cut);
            let mut rig = rig.replaced(&mut ledger);
            rig.run_to_end(&mut ledger);
            let entry = ledger.entry(id);
            entry.assert_same(&solo, &format!("round {round}, killed after {cut}"));
        }
    }
}

#[test]
fn a_cancelled_request_frees_its_pages_within_the_call() {
    let language = language();
    let mut random = Seeded::new(10);
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, LARGE);
    let prompt = random_ids(&mut random, 300);
    let mut request = Request {
        prompt: Prompt::Tokens(prompt),
        ..random_request(&mut random, &[TokenId(5), TokenId(6)])
    };
    request.choices = 3;
    request.stop = StopRules {
        ignore_eos: true,
        ..StopRules::default()
    };
    rig.submit(&mut ledger, RequestId(1), request);
    for _step in 0..4 {
        rig.step(&mut ledger);
    }
    assert!(rig.core.scheduler_mut().stats().pages_used > 4);
    rig.cancel(&mut ledger, RequestId(1));
    assert_eq!(rig.core.scheduler_mut().stats().pages_used, 0);
    assert!(!rig.core.has_work());
    rig.step(&mut ledger);
    rig.core.audit().unwrap();
}

#[test]
fn a_request_that_is_cancelled_while_it_is_prepared_is_never_run() {
    let language = language();
    let mut core = Rig::new(&language, LARGE).core;
    let id = RequestId(1);
    let mut random = Seeded::new(11);
    core.handle(Input::Submit {
        id,
        request: Box::new(random_request(&mut random, &[TokenId(3)])),
        resume: None,
    });
    let job = core.take_jobs().pop().unwrap();
    core.handle(Input::Cancel { id });
    assert!(job.is_stale.load(Ordering::Relaxed));
    let context = rig::context(&language);
    let result = crate::prepare::run_job(&context, &job);
    let attempt = job.attempt;
    core.handle(Input::Prepared {
        id,
        attempt,
        result,
    });
    assert!(!core.has_work());
    assert!(core.take_events().is_empty());
}

#[test]
fn logits_that_are_not_finite_fail_their_request_only() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, LARGE);
    let mut random = Seeded::new(13);
    let mut request = random_request(&mut random, &[TokenId(3)]);
    request.stop = StopRules {
        max_tokens: Some(30),
        ignore_eos: true,
        ..StopRules::default()
    };
    for id in 1..=3 {
        rig.submit(&mut ledger, RequestId(id), request.clone());
    }
    for _step in 0..5 {
        rig.step(&mut ledger);
    }
    rig.core.backend_mut().ailment = Some(Ailment::PoisonsRow(1));
    rig.step(&mut ledger);
    rig.core.backend_mut().ailment = None;
    rig.run_to_end(&mut ledger);
    let faults = ledger.entries().filter_map(|(_id, entry)| entry.fault());
    assert_eq!(faults.collect::<Vec<_>>(), [&Fault::NonFiniteLogits]);
    assert_eq!(rig.stats().contained_faults_total, 1);
}

/// What a sequence had computed when its logits broke is not given to anybody else.
#[test]
fn pages_behind_broken_logits_are_not_used_again() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, LARGE);
    let mut random = Seeded::new(15);
    let mut request = random_request(&mut random, &[TokenId(3)]);
    request.prompt = Prompt::Tokens(random_ids(&mut random, 150));
    request.choices = 3;
    request.stop = StopRules {
        max_tokens: Some(30),
        ignore_eos: true,
        ..StopRules::default()
    };
    rig.submit(&mut ledger, RequestId(1), request.clone());
    for _step in 0..5 {
        rig.step(&mut ledger);
    }
    rig.core.backend_mut().ailment = Some(Ailment::PoisonsRow(2));
    rig.run_to_end(&mut ledger);
    assert!(ledger.entry(RequestId(1)).fault().is_some());
    assert_eq!(rig.stats().pages_cached, 0);
    rig.core.backend_mut().ailment = None;
    for id in 2..4 {
        rig.submit(&mut ledger, RequestId(id), request.clone());
        rig.run_to_end(&mut ledger);
        let usage = ledger.entry(RequestId(id)).usage().unwrap();
        assert_eq!(usage.cached_tokens > 0, id == 3);
    }
}

/// Others that share a prefix with a request whose logits break keep it.
#[test]
fn distrust_ends_where_others_hold_pages() {
    let language = language();
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(&language, LARGE);
    let mut random = Seeded::new(16);
    let mut request = random_request(&mut random, &[TokenId(3)]);
    request.prompt = Prompt::Tokens(random_ids(&mut random, 150));
    request.choices = 1;
    request.stop = StopRules {
        max_tokens: Some(100),
        ignore_eos: true,
        ..StopRules::default()
    };
    rig.submit(&mut ledger, RequestId(1), request.clone());
    rig.step(&mut ledger);
    rig.submit(&mut ledger, RequestId(2), request.clone());
    rig.step(&mut ledger);
    rig.core.backend_mut().ailment = Some(Ailment::PoisonsRow(1));
    rig.step(&mut ledger);
    rig.core.backend_mut().ailment = None;
    rig.run_to_end(&mut ledger);
    assert!(ledger.entry(RequestId(2)).fault().is_some());
    let solo = run_alone(&language, &request);
    ledger
        .entry(RequestId(1))
        .assert_same(&solo, "the neighbour");
}

#[test]
fn more_requests_than_the_engine_holds_are_refused() {
    let language = language();
    let mut core = Rig::new(&language, LARGE).core;
    let mut random = Seeded::new(14);
    let request = random_request(&mut random, &[TokenId(3)]);
    for id in 0..=ENGINE_REQUESTS_MAX as u64 {
        core.handle(Input::Submit {
            id: RequestId(id),
            request: Box::new(request.clone()),
            resume: None,
        });
    }
    let events = core.take_events();
    assert!(matches!(
        events.as_slice(),
        [Event::Rejected(Rejected {
            fault: Fault::Overloaded { .. },
            ..
        })]
    ));
}
