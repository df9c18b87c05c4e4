use std::time::Duration;

use super::*;

fn candidates(probabilities: &[f32]) -> Vec<Candidate> {
    let candidate = |probability: &f32| Candidate {
        index: 0,
        token: 0,
        probability: *probability,
    };
    probabilities.iter().map(candidate).collect()
}

#[test]
fn likely_tokens_are_drafted_and_unlikely_ones_are_not() {
    let times = RowTimes::default();
    assert_eq!(worthwhile(&candidates(&[]), 1, &times), 0);
    assert_eq!(worthwhile(&candidates(&[0.1, 0.01]), 1, &times), 0);
    assert_eq!(worthwhile(&candidates(&[0.9, 0.8, 0.1]), 1, &times), 2);
    assert_eq!(worthwhile(&candidates(&[0.98; 8]), 1, &times), 8);
}

#[test]
fn nothing_is_drafted_where_rows_cost_what_they_bring() {
    let mut times = RowTimes::default();
    for _round in 0..30 {
        for rows in 1..=10_u64 {
            times.learn(
                usize::try_from(rows).unwrap(),
                Duration::from_millis(10 * rows),
            );
        }
    }
    assert_eq!(worthwhile(&candidates(&[0.9; 2]), 8, &times), 0);
    assert_eq!(worthwhile(&candidates(&[0.9; 4]), 1, &times), 0);
}
