use super::*;

#[test]
fn work_is_called_by_its_name_or_its_kind() {
    assert!(Work::Decode(2000).is_called("decode-2000"));
    assert!(Work::Decode(2000).is_called("decode"));
    assert!(!Work::Decode(2000).is_called("decode-200"));
    assert!(!Work::Turn.is_called("streams"));
}

#[test]
fn percentiles_are_values_that_were_measured() {
    let values: Vec<f64> = (1..=200).map(f64::from).collect();
    assert_eq!(percentile(&values, 50), 100.0);
    assert_eq!(percentile(&values, 99), 198.0);
    assert_eq!(percentile(&[7.0], 99), 7.0);
    assert_eq!(percentile(&[], 99), 0.0);
}

#[test]
fn every_work_fits_the_context_that_servers_get() {
    // SmolLM2 was trained on no more.
    for context in CONTEXTS {
        let setup = Work::Decode(context).setup();
        assert!(setup.context <= 8192 && setup.context >= context + 129);
    }
    assert!(Work::Shared.setup().context >= SHARED_WORDS + SHARED_OWN_WORDS + 32 + 64);
    let turns = TURN_WORDS + NEXT_WORDS + usize::try_from(TURN_OUTPUT).unwrap();
    assert!(Work::Turn.setup().context > turns + 64);
}
