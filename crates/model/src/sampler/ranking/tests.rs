use super::{Candidate, Shelves, are_usable, best, first_maximum, maximum};
use crate::text::random::Random;

/// Logits with many equal ones and some impossible ones.
fn logits(random: &mut Random, count: usize) -> Vec<f32> {
    let coarse = random.below(2) == 0;
    (0..count)
        .map(|_| match random.below(12) {
            0 => f32::NEG_INFINITY,
            _ if coarse => random.below(6) as f32,
            _ => random.unit() * 20.0 - 10.0,
        })
        .collect()
}

#[test]
fn the_best_are_those_of_a_full_sort() {
    let mut random = Random(10);
    for round in 0..400 {
        let length = 1 + random.below(3000);
        let logits = logits(&mut random, length);
        let mut sorted: Vec<Candidate> = (0..)
            .zip(&logits)
            .filter(|(_, logit)| **logit > f32::NEG_INFINITY)
            .map(|(token, &logit)| Candidate { token, logit })
            .collect();
        sorted.sort_by(|left, right| {
            right
                .logit
                .total_cmp(&left.logit)
                .then(left.token.cmp(&right.token))
        });
        for count in [0, 1, 2, 7, 40, 128, 1000, 4000] {
            let mut expected = sorted.clone();
            expected.truncate(count);
            assert_eq!(best(&logits, count), expected, "round {round}, {count}");
        }
        for temperature in [0.01, 1.0, 1e38, f32::MIN_POSITIVE] {
            let mut shelves = Shelves::new(&logits, maximum(&logits), temperature);
            let ranks = 0..=sorted.len();
            let ranked: Vec<Candidate> = ranks.map_while(|rank| shelves.get(rank)).collect();
            assert_eq!(ranked, sorted, "round {round}, {temperature}");
        }
        let first = sorted.first().map(|candidate| candidate.logit);
        assert_eq!(maximum(&logits), first.unwrap_or(f32::NEG_INFINITY));
    }
}

#[test]
fn the_first_of_equal_maxima_counts() {
    let mut logits = vec![1.0; 500];
    logits[77] = 3.0;
    logits[78] = 3.0;
    logits[490] = 3.0;
    assert_eq!(first_maximum(&logits), Some(77));
    assert_eq!(first_maximum(&[]), None);
}

#[test]
fn only_numbers_below_infinity_are_usable() {
    for position in [0, 63, 64, 199] {
        for (value, usable) in [
            (f32::NAN, false),
            (f32::INFINITY, false),
            (f32::NEG_INFINITY, true),
            (f32::MAX, true),
        ] {
            let mut logits = vec![0.0; 200];
            logits[position] = value;
            assert_eq!(are_usable(&logits), usable, "{value} at {position}");
        }
    }
}
