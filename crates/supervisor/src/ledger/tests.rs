use proptest::prelude::*;
use relight_protocol::{ChoiceIndex, FinishReason, Prompt, Sampling, StopRules, TokenId, limits};

use super::*;

const ID: RequestId = RequestId(3);
const CONTEXT_TOKENS: u32 = 100_000;

fn request(choices: u16, max_tokens: Option<u32>) -> Box<Request> {
    Box::new(Request {
        prompt: Prompt::Text("x".into()),
        choices,
        sampling: Sampling::default(),
        stop: StopRules {
            max_tokens,
            ..StopRules::default()
        },
        logprobs: None,
        echo: false,
    })
}

fn entry(choices: u16) -> Entry {
    let print = Fingerprint { hash: 0, bytes: 1 };
    let mut entry = Entry::new(ID, request(choices, None), print, 0);
    let is_new = entry.commit_accepted(&accepted(&[7, 8])).unwrap();
    assert!(is_new);
    entry
}

fn accepted(prompt: &[u32]) -> Accepted {
    Accepted {
        id: ID,
        prompt_tokens: prompt.iter().copied().map(TokenId).collect(),
        prompt_text: None,
    }
}

fn delta(index: u32, token: u32, offset: u32, text: &str) -> Delta {
    Delta {
        id: ID,
        choice: ChoiceIndex(0),
        token_index: index,
        token: TokenId(token),
        text_offset: offset,
        text: text.into(),
        logprobs: Vec::new(),
    }
}

fn end(count: u32, offset: u32, text: &str) -> ChoiceFinished {
    ChoiceFinished {
        id: ID,
        choice: ChoiceIndex(0),
        reason: FinishReason::Stop,
        token_count: count,
        text_offset: offset,
        text: text.into(),
    }
}

fn commit(entry: &mut Entry, delta: Delta) -> Result<Option<Delta>, Violation> {
    entry.commit_delta(delta, CONTEXT_TOKENS)
}

#[test]
fn the_next_token_is_committed_and_a_repeated_one_dropped() {
    let mut entry = entry(1);
    let first = delta(0, 5, 0, "ab");
    assert_eq!(commit(&mut entry, first.clone()), Ok(Some(first.clone())));
    assert_eq!(commit(&mut entry, first), Ok(None));
    assert_eq!(entry.choices()[0].tokens(), [TokenId(5)]);
    assert_eq!(entry.choices()[0].text_bytes(), 2);
}

#[test]
fn a_skipped_token_is_a_violation_and_changes_nothing() {
    let mut entry = entry(1);
    let skipped = commit(&mut entry, delta(1, 5, 0, "ab")).unwrap_err();
    assert!(matches!(
        skipped,
        Violation::TokenSkipped {
            expected: 0,
            found: 1,
            ..
        }
    ));
    assert_eq!(entry.choices()[0].token_count(), 0);
    assert_eq!(entry.choices()[0].text_bytes(), 0);
}

#[test]
fn another_token_at_a_committed_index_is_a_violation() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "ab")).unwrap();
    let other = commit(&mut entry, delta(0, 6, 0, "ab")).unwrap_err();
    assert!(matches!(other, Violation::DifferentToken { index: 0, .. }));
}

#[test]
fn a_gap_in_the_text_is_a_violation() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "ab")).unwrap();
    let gap = commit(&mut entry, delta(1, 6, 3, "d")).unwrap_err();
    assert!(matches!(
        gap,
        Violation::TextSkipped {
            expected: 2,
            found: 3,
            ..
        }
    ));
    assert_eq!(entry.choices()[0].token_count(), 1);
}

#[test]
fn text_that_overlaps_is_cut_to_what_is_new() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "añ")).unwrap();
    let fresh = commit(&mut entry, delta(1, 6, 1, "ño")).unwrap();
    assert_eq!(fresh, Some(delta(1, 6, 3, "o")));
    let ended = entry.commit_choice_finished(end(2, 3, "o!")).unwrap();
    assert_eq!(ended, Some(end(2, 4, "!")));
}

#[test]
fn text_that_overlaps_with_other_bytes_is_a_violation() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "ab")).unwrap();
    let other = commit(&mut entry, delta(1, 6, 1, "xc")).unwrap_err();
    assert!(matches!(other, Violation::DifferentText { offset: 1, .. }));
}

#[test]
fn a_repeated_token_may_not_bring_new_text() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "ab")).unwrap();
    let more = commit(&mut entry, delta(0, 5, 0, "abc")).unwrap_err();
    assert!(matches!(more, Violation::DifferentText { .. }));
}

#[test]
fn nothing_follows_the_end_of_a_choice() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "ab")).unwrap();
    let ended = end(1, 2, "c");
    assert_eq!(
        entry.commit_choice_finished(ended.clone()),
        Ok(Some(ended.clone()))
    );
    assert_eq!(entry.commit_choice_finished(ended), Ok(None));
    let after = commit(&mut entry, delta(1, 6, 3, "d")).unwrap_err();
    assert!(matches!(after, Violation::AfterEnd { .. }));
    let otherwise = ChoiceFinished {
        reason: FinishReason::Length,
        ..end(1, 2, "c")
    };
    let otherwise = entry.commit_choice_finished(otherwise).unwrap_err();
    assert!(matches!(otherwise, Violation::AfterEnd { .. }));
    let longer = entry.commit_choice_finished(end(1, 2, "cd")).unwrap_err();
    assert!(matches!(longer, Violation::AfterEnd { .. }));
}

#[test]
fn an_end_that_miscounts_the_tokens_is_a_violation() {
    let mut entry = entry(1);
    commit(&mut entry, delta(0, 5, 0, "ab")).unwrap();
    let miscounted = entry.commit_choice_finished(end(2, 2, "")).unwrap_err();
    assert!(matches!(
        miscounted,
        Violation::WrongTokenCount {
            expected: 1,
            found: 2,
            ..
        }
    ));
}

#[test]
fn a_request_is_complete_only_when_every_choice_is() {
    let mut entry = entry(2);
    entry.commit_choice_finished(end(0, 0, "")).unwrap();
    assert_eq!(
        entry.commit_finished(0),
        Err(Violation::FinishedEarly { id: ID })
    );
    let other = ChoiceFinished {
        choice: ChoiceIndex(1),
        ..end(0, 0, "")
    };
    entry.commit_choice_finished(other).unwrap();
    assert_eq!(entry.commit_finished(0), Ok(()));
}

#[test]
fn a_choice_that_was_not_asked_for_is_a_violation() {
    let mut entry = entry(1);
    let other = Delta {
        choice: ChoiceIndex(1),
        ..delta(0, 5, 0, "")
    };
    assert_eq!(
        commit(&mut entry, other),
        Err(Violation::NoSuchChoice { id: ID, index: 1 })
    );
}

#[test]
fn tokens_past_the_limit_are_a_violation() {
    let print = Fingerprint { hash: 0, bytes: 1 };
    let mut entry = Entry::new(ID, request(1, Some(1)), print, 0);
    let early = commit(&mut entry, delta(0, 5, 0, "")).unwrap_err();
    assert_eq!(early, Violation::NotAccepted { id: ID });
    entry.commit_accepted(&accepted(&[1])).unwrap();
    commit(&mut entry, delta(0, 5, 0, "")).unwrap();
    let past = commit(&mut entry, delta(1, 5, 0, "")).unwrap_err();
    assert!(matches!(past, Violation::TooManyTokens { index: 1, .. }));
}

#[test]
fn a_prompt_that_changes_under_a_request_is_a_violation() {
    let mut entry = entry(1);
    assert_eq!(entry.commit_accepted(&accepted(&[7, 8])), Ok(false));
    assert_eq!(
        entry.commit_accepted(&accepted(&[7])),
        Err(Violation::DifferentPrompt { id: ID })
    );
}

#[test]
fn a_resume_holds_the_prompt_and_every_committed_token() {
    let mut entry = entry(2);
    commit(&mut entry, delta(0, 5, 0, "a")).unwrap();
    entry.commit_choice_finished(end(1, 1, "")).unwrap();
    let resume = entry.resume().unwrap();
    assert_eq!(resume.prompt_tokens, [TokenId(7), TokenId(8)]);
    assert_eq!(resume.choices[0].tokens, [TokenId(5)]);
    assert!(resume.choices[0].finished);
    assert!(resume.choices[1].tokens.is_empty());
    assert!(!resume.choices[1].finished);
}

fn started(cached_tokens: u32) -> Started {
    let id = ID;
    Started { id, cached_tokens }
}

#[test]
fn usage_counts_what_was_committed() {
    let mut entry = entry(2);
    commit(&mut entry, delta(0, 5, 0, "a")).unwrap();
    entry.commit_started(started(1000)).unwrap();
    let usage = entry.usage();
    assert_eq!(
        (
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens
        ),
        (2, 2, 1)
    );
}

#[test]
fn the_first_word_about_cached_tokens_counts() {
    let mut entry = entry(1);
    assert_eq!(entry.commit_started(started(1)), Ok(true));
    assert_eq!(entry.commit_started(started(2)), Ok(false));
    entry.commit_choice_finished(end(0, 0, "")).unwrap();
    entry.commit_finished(0).unwrap();
    assert_eq!(entry.usage().cached_tokens, 1);
}

#[test]
fn a_request_cannot_start_before_it_is_accepted() {
    let print = Fingerprint { hash: 0, bytes: 0 };
    let mut entry = Entry::new(ID, request(1, None), print, 0);
    let early = Err(Violation::NotAccepted { id: ID });
    assert_eq!(entry.commit_started(started(1)), early);
}

#[test]
fn the_kept_tail_of_a_long_text_is_bounded_and_still_checked() {
    let mut entry = entry(1);
    let piece = "日本 é".repeat(20);
    let length = u32::try_from(piece.len()).unwrap();
    let pieces = u32::try_from(8 * limits::TEXT_TAIL_BYTES_MAX).unwrap() / length;
    for index in 0..pieces {
        let offset = index * length;
        commit(&mut entry, delta(index, 1, offset, &piece)).unwrap();
    }
    assert!(entry.choices[0].tail_bytes() < 3 * limits::TEXT_TAIL_BYTES_MAX);
    let last = (pieces - 1) * length;
    let repeated = delta(pieces - 1, 1, last, &piece);
    assert_eq!(commit(&mut entry, repeated), Ok(None));
    let other = delta(pieces, 1, last, &piece.replace('é', "è"));
    assert!(matches!(
        commit(&mut entry, other),
        Err(Violation::DifferentText { .. })
    ));
    // Too far back to be compared: dropped, as it adds nothing.
    assert_eq!(commit(&mut entry, delta(0, 1, 0, &piece)), Ok(None));
}

#[test]
fn the_ledger_knows_its_size() {
    let mut ledger = Ledger::default();
    let print = Fingerprint {
        hash: 0,
        bytes: 100,
    };
    assert!(ledger.open(ID, request(1, None), print, 0));
    assert!(!ledger.open(ID, request(1, None), print, 0));
    assert!(ledger.open(RequestId(1), request(1, None), print, 0));
    assert_eq!((ledger.len(), ledger.bytes()), (2, 200));
    let order: Vec<RequestId> = ledger.entries().map(|(id, _)| id).collect();
    assert_eq!(order, [RequestId(1), ID]);
    assert!(ledger.close(ID).is_some());
    assert!(ledger.close(ID).is_none());
    assert_eq!((ledger.len(), ledger.bytes()), (1, 100));
}

proptest! {
    /// However an engine repeats, regroups and misplaces its claims, what is delivered is a
    /// prefix of the truth, each byte once.
    #[test]
    fn what_is_delivered_is_always_a_prefix_of_the_truth(
        pieces in proptest::collection::vec("[aé🙂]{0,3}", 1..20),
        claims in proptest::collection::vec((0_usize..22, 0_u32..4, any::<bool>()), 0..100),
    ) {
        let truth: String = pieces.concat();
        let mut offsets = vec![0];
        for piece in &pieces {
            offsets.push(offsets.last().unwrap() + u32::try_from(piece.len()).unwrap());
        }
        let mut entry = entry(1);
        let mut received = String::new();
        let mut token_count = 0;
        for (wanted, shift, is_next) in claims {
            let index = if is_next { token_count } else { wanted };
            let Some(piece) = pieces.get(index) else { continue };
            let claim = delta(
                u32::try_from(index).unwrap(),
                u32::try_from(index).unwrap(),
                offsets[index] + shift / 3,
                piece,
            );
            if let Ok(Some(fresh)) = commit(&mut entry, claim) {
                prop_assert_eq!(fresh.token_index as usize, token_count);
                prop_assert_eq!(fresh.text_offset as usize, received.len());
                received.push_str(&fresh.text);
                token_count += 1;
            }
            prop_assert!(truth.starts_with(&received));
        }
    }
}
