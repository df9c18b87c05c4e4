//! Tokens that were drafted: the stream is that of an engine which drafts nothing.

use relight_protocol::FinishReason;

use super::*;
use crate::test_vocabulary::FIRST_WORD;

const EAGER: RigSize = RigSize {
    drafting: Drafting::Eager,
    ..LARGE
};

/// A greedy request whose answer repeats a phrase most of the time.
fn repetitive(random: &mut Seeded) -> Request {
    Request {
        prompt: Prompt::Tokens(random_ids(random, 20)),
        choices: 1,
        sampling: Sampling::default(),
        stop: StopRules {
            max_tokens: Some(120),
            ignore_eos: true,
            ..StopRules::default()
        },
        logprobs: None,
        echo: false,
    }
}

/// What of `request` comes with drafts, checked against what comes without. The numbers are
/// those of the end.
fn run_eagerly(language: &Language, request: &Request) -> (record::Entry, Stats) {
    let mut ledger = Ledger::default();
    let mut rig = Rig::new(language, EAGER);
    rig.submit(&mut ledger, RequestId(1), request.clone());
    rig.run_to_end(&mut ledger);
    let entry = ledger.entry(RequestId(1)).clone();
    entry.assert_same(&run_alone(language, request), "with drafts");
    (entry, rig.stats())
}

/// The first of these requests that repeats itself.
fn repetitive_and_saving(language: &Language) -> (Request, Stats) {
    let mut random = Seeded::new(20);
    let mut tried = 0;
    loop {
        let request = repetitive(&mut random);
        let stats = run_eagerly(language, &request).1;
        if stats.accepted_drafts_total > 50 {
            return (request, stats);
        }
        tried += 1;
        assert!(tried < 20, "no answer repeats itself");
    }
}

#[test]
fn drafts_that_come_true_save_steps_and_are_counted() {
    let language = language();
    let (_request, stats) = repetitive_and_saving(&language);
    assert_eq!(stats.generated_tokens_total, 120);
    // A step for the prompt is one for the first token too.
    assert_eq!(stats.steps_total + stats.accepted_drafts_total, 120);
    assert!(stats.drafted_tokens_total > stats.accepted_drafts_total);
}

#[test]
fn an_end_within_a_run_of_drafts_is_the_end() {
    let language = language();
    let (request, _stats) = repetitive_and_saving(&language);
    for tokens in 1..60 {
        let mut request = request.clone();
        request.stop.max_tokens = Some(tokens);
        let (entry, stats) = run_eagerly(&language, &request);
        assert_eq!(entry.reasons(), [Some(FinishReason::Length)]);
        assert_eq!(stats.generated_tokens_total, u64::from(tokens));
        assert!(stats.accepted_drafts_total < u64::from(tokens));
    }
    for (strings, ids) in [
        (vec!["éb"], vec![]),
        (vec!["zz", "a😀"], vec![]),
        (vec![], vec![FIRST_WORD + 5]),
    ] {
        for min_tokens in [0, 30, 31, 32, 33, 34] {
            let mut request = request.clone();
            request.stop.strings = strings.iter().map(|text| (*text).to_owned()).collect();
            request.stop.token_ids = ids.iter().copied().map(TokenId).collect();
            request.stop.min_tokens = min_tokens;
            let entry = run_eagerly(&language, &request).0;
            assert_eq!(entry.reasons(), [Some(FinishReason::Stop)]);
        }
    }
}

#[test]
fn logprobs_penalties_and_chance_are_those_without_drafts() {
    let language = language();
    let (request, _stats) = repetitive_and_saving(&language);
    let mut accepted = 0;
    for seed in 0..10 {
        let mut request = request.clone();
        request.logprobs = Some(3);
        request.choices = 2;
        request.sampling = Sampling {
            temperature: 2.5,
            top_p: 0.999,
            frequency_penalty: 0.02,
            repetition_penalty: 1.02,
            seed,
            ..Sampling::default()
        };
        accepted += run_eagerly(&language, &request).1.accepted_drafts_total;
    }
    assert!(accepted > 50, "{accepted}");
}

/// Pages that drafts have written are in the index as far as the drafts came true.
#[test]
fn the_next_turn_finds_what_drafts_have_computed() {
    let language = language();
    let (request, _stats) = repetitive_and_saving(&language);
    let mut rest = Vec::new();
    for drafting in [Drafting::Never, Drafting::Eager] {
        let mut ledger = Ledger::default();
        let mut rig = Rig::new(&language, RigSize { drafting, ..LARGE });
        rig.submit(&mut ledger, RequestId(1), request.clone());
        rig.run_to_end(&mut ledger);
        let mut prompt = ledger.entry(RequestId(1)).conversation();
        prompt.push(TokenId(9));
        let next = Request {
            prompt: Prompt::Tokens(prompt.clone()),
            ..request.clone()
        };
        rig.submit(&mut ledger, RequestId(2), next.clone());
        rig.run_to_end(&mut ledger);
        let entry = ledger.entry(RequestId(2));
        entry.assert_same(&run_alone(&language, &next), "the second turn");
        rest.push(prompt.len() - entry.usage().unwrap().cached_tokens as usize);
    }
    assert_eq!(rest[0], rest[1]);
    assert!(rest[0] <= PAGE_TOKENS, "{rest:?}");
}
