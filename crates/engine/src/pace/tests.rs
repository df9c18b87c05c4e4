use super::*;

fn work(rows: u64) -> StepWork {
    StepWork { rows, keys: rows }
}

/// Has seen such steps, by kind, rows and milliseconds.
fn seen(steps: &[(StepKind, u64, u64)]) -> Pace {
    let mut pace = Pace::default();
    for (kind, rows, ms) in steps {
        pace.learn(work(*rows), *kind, Duration::from_millis(*ms));
    }
    pace
}

#[test]
fn nothing_is_held_back_before_anything_is_known() {
    assert_eq!(Pace::default().rows(4), usize::MAX);
    let few = seen(&[(StepKind::Prompts, 8, 1000)]);
    assert_eq!(few.rows(4), usize::MAX, "few rows tell nothing");
}

#[test]
fn before_answers_alone_were_seen_a_fixed_time_holds() {
    let rows = seen(&[(StepKind::Prompts, 100, 100)]).rows(4);
    assert_eq!(rows, 50);
}

#[test]
fn a_step_beside_answers_takes_a_few_times_what_answers_alone_take() {
    for (alone, expected) in [(10, 23), (21, 48), (23, 50), (30, 60), (1000, 2000)] {
        let pace = seen(&[(StepKind::Answers, 8, alone), (StepKind::Prompts, 100, 100)]);
        assert_eq!(pace.rows(8), expected);
    }
}

#[test]
fn every_number_of_answers_has_a_time_of_its_own() {
    let pace = seen(&[
        (StepKind::Answers, 1, 10),
        (StepKind::Answers, 32, 60),
        (StepKind::Prompts, 100, 100),
    ]);
    assert_eq!(pace.rows(1), 23);
    assert_eq!(pace.rows(32), 120);
    // As much more than one as the guess says, and as much less than 32.
    assert!((23..60).contains(&pace.rows(3)), "{}", pace.rows(3));
    assert!((60..120).contains(&pace.rows(20)), "{}", pace.rows(20));
    assert!(pace.rows(usize::MAX) > 120);
}

#[test]
fn what_rows_cost_beside_answers_is_told_from_what_they_cost_alone() {
    let mut pace = seen(&[
        (StepKind::Answers, 8, 20),
        (StepKind::Mixed, 32, 64),
        (StepKind::Prompts, 500, 500),
    ]);
    assert!((22..=23).contains(&pace.rows(8)), "{}", pace.rows(8));
    for _step in 0..50 {
        pace.learn(work(23), StepKind::Mixed, Duration::from_millis(69));
    }
    assert!(pace.rows(8) <= 16);
}

/// A step's fixed part and what each row adds, as measured with two models: however far the
/// first row's cost is off, the steps that the pace asks for soon take what they should.
#[test]
fn steps_come_to_take_what_they_should() {
    for (fixed_us, row_us) in [(4200.0, 1010.0), (11_600.0, 880.0), (60_000.0, 7000.0)] {
        for answers in [1_usize, 4, 8, 32] {
            let time =
                |rows: usize| Duration::from_secs_f64((fixed_us + row_us * rows as f64) / 1e6);
            let mut pace = Pace::default();
            pace.learn(work(512), StepKind::Prompts, time(512));
            pace.learn(work(answers as u64), StepKind::Answers, time(answers));
            for _step in 0..10 {
                let rows = pace.rows(answers);
                pace.learn(work(rows as u64), StepKind::Mixed, time(rows));
            }
            let rows = pace.rows(answers);
            let ratio = time(rows).as_secs_f64() / time(answers).as_secs_f64();
            assert!(
                rows == 16 || (ratio > 1.8 && ratio < 2.6),
                "{answers}: {ratio}"
            );
        }
    }
}

#[test]
fn prompts_advance_whatever_a_row_costs() {
    let pace = seen(&[(StepKind::Answers, 4, 1), (StepKind::Mixed, 16, 5000)]);
    assert_eq!(pace.rows(4), 16);
}

#[test]
fn a_fast_machine_is_not_held_back() {
    let pace = seen(&[(StepKind::Answers, 1, 1), (StepKind::Prompts, 100_000, 1)]);
    assert!(pace.rows(1) >= 8192);
}

#[test]
fn one_slow_step_does_not_change_everything() {
    let mut pace = seen(&[(StepKind::Answers, 8, 50), (StepKind::Mixed, 128, 128)]);
    let before = pace.rows(8);
    pace.learn(work(128), StepKind::Mixed, Duration::from_millis(3 * 128));
    assert!(pace.rows(8) >= before * 7 / 10, "{}", pace.rows(8));
}
