use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn a_row_costs_what_steps_with_more_rows_took() {
    let mut times = RowTimes::default();
    let first = times.of(5);
    for _step in 0..20 {
        times.learn(1, ms(10));
        times.learn(5, ms(50));
    }
    let ratio = times.of(5) / times.of(1);
    assert!(first < 3.0 && ratio > 4.5 && ratio < 5.5, "{ratio}");
    assert!(
        times.of(4) / times.of(1) < 3.0,
        "of others nothing is known"
    );
}

#[test]
fn a_machine_that_slows_down_changes_no_proportion() {
    let mut times = RowTimes::default();
    let mut alternate = |factor: u64| {
        for _round in 0..20 {
            times.learn(1, ms(10 * factor));
            times.learn(3, ms(12 * factor));
        }
        times.of(3) / times.of(1)
    };
    let before = alternate(1);
    let after = alternate(7);
    assert!((before / after - 1.0).abs() < 0.05, "{before} {after}");
}

#[test]
fn one_step_that_was_held_up_does_not_count_for_ever() {
    let mut times = RowTimes::default();
    times.learn(1, ms(10));
    let before = times.of(4);
    times.learn(4, ms(5000));
    let held_up = times.of(4);
    assert!(held_up > 1.4 * before && held_up < 1.6 * before);
    for _step in 0..2000 {
        times.learn(1, ms(10));
    }
    assert!(times.of(4) / times.of(1) < 1.05 * before);
}

#[test]
fn nonsense_teaches_nothing() {
    let mut times = RowTimes::default();
    times.learn(0, ms(10));
    times.learn(DRAFT_ROWS_MAX + 1, ms(10));
    times.learn(2, Duration::ZERO);
    assert_eq!(times.unit_ms, None);
    assert!(times.of(usize::MAX).is_finite());
}
