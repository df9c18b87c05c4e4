use relight_protocol::{Prompt, RequestId, Sampling, StopRules};

use super::*;
use crate::ledger::Ledger;

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
    quarantine.add(print, 1000);
    assert!(quarantine.holds(print, 1000 + limits::QUARANTINE_MS - 1));
    assert!(!quarantine.holds(print, 1000 + limits::QUARANTINE_MS));
}

#[test]
fn a_full_quarantine_forgets_the_oldest() {
    let mut quarantine = Quarantine::default();
    let print = |hash| Fingerprint { hash, bytes: 0 };
    for hash in 0..=limits::QUARANTINED_MAX as u64 {
        quarantine.add(print(hash), hash);
    }
    assert!(!quarantine.holds(print(0), 2000));
    assert!(quarantine.holds(print(1), 2000));
    assert_eq!(quarantine.until_ms.len(), limits::QUARANTINED_MAX);
}

#[test]
fn the_second_death_at_the_same_place_convicts() {
    let mut ledger = Ledger::default();
    let id = RequestId(1);
    let print = Fingerprint { hash: 0, bytes: 0 };
    ledger.open(id, Box::new(request("x", 0)), print, 0);
    let entry = ledger.entry_mut(id).unwrap();
    assert!(!convict(entry));
    assert!(convict(entry));
}
