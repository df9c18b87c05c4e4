use super::*;

fn learned(rows: u64, ms: u64) -> Pace {
    let mut pace = Pace::default();
    pace.learn(StepWork { rows, keys: rows }, Duration::from_millis(ms));
    pace
}

#[test]
fn nothing_is_held_back_before_anything_is_known() {
    assert_eq!(Pace::default().rows(), usize::MAX);
    assert_eq!(learned(8, 1000).rows(), usize::MAX, "few rows tell nothing");
}

#[test]
fn a_step_beside_answers_has_as_many_rows_as_fit_the_pause() {
    let rows = learned(100, 2 * PAUSE_MS).rows();
    assert!((40..=50).contains(&rows), "{rows}");
}

#[test]
fn a_slow_machine_still_advances_its_prompts() {
    assert_eq!(learned(16, 100 * PAUSE_MS).rows(), 16);
}

#[test]
fn a_fast_machine_is_not_held_back() {
    assert!(learned(100_000, 1).rows() >= 8192);
}

#[test]
fn one_slow_step_does_not_change_everything() {
    let mut pace = learned(128, PAUSE_MS);
    let work = StepWork {
        rows: 128,
        keys: 128,
    };
    pace.learn(work, Duration::from_millis(3 * PAUSE_MS));
    assert!(pace.rows() >= 80, "{}", pace.rows());
}
