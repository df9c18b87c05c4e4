use relight_protocol::recorder::{Activity, Doing};
use relight_protocol::{Phase, Prompt, Sampling, StopRules};

use super::*;

fn request(text: &str, seed: u64) -> Request {
    Request {
        prompt: Prompt::Text(text.into()),
        choices: 1,
        sampling: Sampling {
            seed,
            ..Sampling::default()
        },
        stop: StopRules::default(),
        logprobs: None,
        echo: false,
    }
}

#[test]
fn a_retry_with_another_seed_has_the_same_fingerprint() {
    let first = Fingerprint::of(&request("x", 1)).unwrap();
    assert_eq!(first, Fingerprint::of(&request("x", 2)).unwrap());
    assert_ne!(first, Fingerprint::of(&request("y", 1)).unwrap());
}

#[test]
fn a_request_too_large_for_the_pipe_is_refused() {
    let large = request(&"x".repeat(limits::FRAME_BYTES_MAX), 0);
    let fault = Fingerprint::of(&large).unwrap_err();
    assert!(matches!(fault, Fault::InvalidRequest { .. }));
}

#[test]
fn a_quarantine_ends() {
    let mut quarantine = Quarantine::default();
    let print = Fingerprint::of(&request("x", 0)).unwrap();
    quarantine.add(print, FaultId(3), 1000);
    let until_ms = 1000 + limits::QUARANTINE_MS;
    assert_eq!(quarantine.holds(print, until_ms - 1), Some(FaultId(3)));
    assert_eq!(quarantine.holds(print, until_ms), None);
}

#[test]
fn a_full_quarantine_forgets_the_oldest() {
    let mut quarantine = Quarantine::default();
    let print = |hash| Fingerprint { hash, bytes: 0 };
    for hash in 0..=limits::QUARANTINED_MAX as u64 {
        quarantine.add(print(hash), FaultId(hash), hash);
    }
    assert_eq!(quarantine.holds(print(0), 2000), None);
    assert_eq!(quarantine.holds(print(1), 2000), Some(FaultId(1)));
    assert_eq!(quarantine.publish().len(), limits::QUARANTINED_MAX);
}

#[test]
fn a_sentence_can_be_lifted_and_so_can_all() {
    let mut quarantine = Quarantine::default();
    let print = |hash| Fingerprint { hash, bytes: 0 };
    for hash in 1..=3 {
        quarantine.add(print(hash), FaultId(hash), 0);
    }
    assert_eq!(quarantine.lift(Some(9)), 0);
    assert_eq!(quarantine.lift(Some(2)), 1);
    assert_eq!(quarantine.holds(print(2), 1), None);
    assert_eq!(quarantine.holds(print(3), 1), Some(FaultId(3)));
    assert_eq!(quarantine.lift(None), 2);
    assert_eq!(quarantine.publish().len(), 0);
}

/// A request under preparation, and two in a step.
fn lanes() -> Lanes {
    let new = |request, is_new| Participant { request, is_new };
    Lanes {
        generator: Activity {
            changes: 6,
            doing: Doing::Shared {
                participants: vec![new(RequestId(1), false), new(RequestId(2), true)],
            },
            ..Activity::default()
        },
        prepare: Activity {
            changes: 4,
            doing: Doing::Private {
                request: RequestId(3),
                phase: Phase::Prepare,
            },
            ..Activity::default()
        },
    }
}

fn ids(suspects: &[Participant]) -> Vec<(u64, bool)> {
    let pair = |one: &Participant| (one.request.0, one.is_new);
    suspects.iter().map(pair).collect()
}

#[test]
fn those_whose_work_was_being_done_are_suspects() {
    let aboard = [1, 2, 3, 4].map(RequestId);
    let found = suspects(Some(&lanes()), &aboard);
    assert_eq!(ids(&found), [(1, false), (2, true), (3, true)]);
    assert_eq!(suspects(Some(&Lanes::default()), &aboard), []);
}

#[test]
fn who_has_left_is_no_suspect() {
    let found = suspects(Some(&lanes()), &[RequestId(2), RequestId(4)]);
    assert_eq!(ids(&found), [(2, true)]);
}

#[test]
fn a_torn_or_missing_record_makes_everybody_a_suspect() {
    let aboard = [1, 4].map(RequestId);
    let mut torn = lanes();
    torn.prepare.changes = 5;
    for lanes in [Some(&torn), None] {
        assert_eq!(ids(&suspects(lanes, &aboard)), [(1, false), (4, false)]);
    }
}
