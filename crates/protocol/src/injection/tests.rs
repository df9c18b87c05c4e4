//! Orders strike where, when and as often as they say.

use super::{Armed, Blow, Injection, Place};

fn order() -> Injection {
    Injection {
        place: Place::Sample,
        blow: Blow::Panic,
        marker: None,
        skip: 0,
        per_million: None,
        seed: 0,
        times: None,
        every_engine: false,
    }
}

fn strikes(injection: Injection, passes: usize) -> Vec<usize> {
    let mut armed = Armed::new(injection);
    (0..passes)
        .filter(|_| armed.pass(Place::Sample, |_| false).is_some())
        .collect()
}

#[test]
fn an_order_strikes_at_its_place_only() {
    let mut armed = Armed::new(order());
    assert_eq!(armed.pass(Place::Emit, |_| true), None);
    assert_eq!(armed.pass(Place::Sample, |_| true), Some(Blow::Panic));
}

#[test]
fn it_lets_some_pass_and_strikes_so_often() {
    let injection = Injection {
        skip: 2,
        times: Some(2),
        ..order()
    };
    assert_eq!(strikes(injection, 9), [2, 3]);
}

#[test]
fn a_marker_spares_everybody_else() {
    let injection = Injection {
        marker: Some("poison".into()),
        ..order()
    };
    let mut armed = Armed::new(injection);
    assert_eq!(armed.pass(Place::Sample, |_| false), None);
    let blow = armed.pass(Place::Sample, |marker| marker == "poison");
    assert_eq!(blow, Some(Blow::Panic));
}

#[test]
fn chance_is_of_the_seed_and_near_what_was_asked() {
    let injection = |seed| Injection {
        per_million: Some(100_000),
        seed,
        ..order()
    };
    let first = strikes(injection(1), 10_000);
    assert_eq!(first, strikes(injection(1), 10_000));
    assert_ne!(first, strikes(injection(2), 10_000));
    assert!((800..1200).contains(&first.len()), "{}", first.len());
}
