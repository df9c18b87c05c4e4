#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of these tests are small"
)]

use super::{Choice, SampleError, Sampler, SamplerSettings, philox};
use crate::text::random::Random;

fn sampled() -> SamplerSettings {
    SamplerSettings {
        temperature: 1.0,
        seed: 42,
        ..SamplerSettings::default()
    }
}

fn token(settings: &SamplerSettings, logits: &[f32], position: u64) -> u32 {
    let sampler = Sampler::new(settings.clone(), 0);
    sampler
        .sample(&mut logits.to_vec(), position, &[])
        .unwrap()
        .token
}

/// Each rule as it is defined, in f64 over the whole vocabulary, with a full sort. Gives the
/// candidates that are left with their probabilities.
fn naive(
    settings: &SamplerSettings,
    prompt: &[u32],
    completion: &[u32],
    logits: &[f32],
) -> Vec<(u32, f64)> {
    let mut values: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
    for &(token, bias) in &settings.logit_bias {
        values[token as usize] += f64::from(bias);
    }
    for (token, value) in (0u32..).zip(&mut values) {
        let count = completion.iter().filter(|&&seen| seen == token).count() as f64;
        if count > 0.0 || prompt.contains(&token) {
            let penalty = f64::from(settings.repetition_penalty);
            *value = if *value > 0.0 {
                *value / penalty
            } else {
                *value * penalty
            };
        }
        if count > 0.0 {
            *value -= f64::from(settings.frequency_penalty) * count
                + f64::from(settings.presence_penalty);
        }
    }
    let mut ranked: Vec<(u32, f64)> = (0..).zip(values).collect();
    ranked.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    let top = ranked[0].1;
    for (_, value) in &mut ranked {
        *value = ((*value - top) / f64::from(settings.temperature)).exp();
    }
    if settings.top_k > 0 {
        ranked.truncate(settings.top_k as usize);
    }
    let mass: f64 = ranked.iter().map(|(_, weight)| weight).sum();
    if settings.top_p < 1.0 {
        let mut sum = 0.0;
        let kept = ranked.iter().position(|(_, weight)| {
            sum += weight;
            sum >= f64::from(settings.top_p) * mass
        });
        ranked.truncate(kept.unwrap() + 1);
    }
    ranked.retain(|&(_, weight)| weight >= f64::from(settings.min_p));
    let mass: f64 = ranked.iter().map(|(_, weight)| weight).sum();
    ranked
        .into_iter()
        .map(|(token, weight)| (token, weight / mass))
        .collect()
}

fn random_settings(random: &mut Random, vocabulary: usize) -> SamplerSettings {
    let maybe =
        |random: &mut Random, value: f32, off: f32| if random.below(2) == 0 { value } else { off };
    SamplerSettings {
        temperature: *random.pick(&[0.3, 0.7, 1.0, 2.0]),
        top_k: *random.pick(&[0, 0, 1, 5, 40, 200, 100_000]),
        top_p: maybe(random, 0.05 + 0.9 * 0.77, 1.0),
        min_p: maybe(random, 0.03, 0.0),
        repetition_penalty: maybe(random, 1.3, 1.0),
        frequency_penalty: maybe(random, 0.4, 0.0),
        presence_penalty: maybe(random, -0.6, 0.0),
        logit_bias: (0..random.below(4))
            .map(|_| (random.below(vocabulary) as u32, random.unit() * 20.0 - 10.0))
            .collect::<std::collections::BTreeMap<_, _>>()
            .into_iter()
            .collect(),
        seed: random.next(),
        logprobs: None,
    }
}

#[test]
fn draws_agree_with_the_rules_as_defined() {
    let mut random = Random(11);
    let mut near_a_border = 0;
    for round in 0..2000 {
        let vocabulary = 2 + random.below(1500);
        let logits: Vec<f32> = (0..vocabulary)
            .map(|_| random.unit() * 12.0 - 6.0)
            .collect();
        let settings = random_settings(&mut random, vocabulary);
        let history = |random: &mut Random| -> Vec<u32> {
            (0..random.below(30))
                .map(|_| random.below(vocabulary.min(20)) as u32)
                .collect()
        };
        let (prompt, completion) = (history(&mut random), history(&mut random));
        let choice = random.below(4) as u16;
        let position = random.next() % 10_000;
        let mut sampler = Sampler::new(settings.clone(), choice);
        sampler.observe_prompt(&prompt);
        for &token in &completion {
            sampler.observe(token);
        }
        let drawn = sampler
            .sample(&mut logits.clone(), position, &[])
            .unwrap()
            .token;

        let uniform = philox::uniform(settings.seed, choice, position);
        let distribution = naive(&settings, &prompt, &completion, &logits);
        let mut sum = 0.0;
        let mut distance = f64::INFINITY;
        let mut expected = distribution.last().unwrap().0;
        for &(token, probability) in &distribution {
            sum += probability;
            distance = distance.min((sum - uniform).abs());
            if sum > uniform {
                expected = token;
                break;
            }
        }
        // Nearer to a border than f32 exponentials resolve, either neighbour is right.
        if distance < 1e-6 {
            near_a_border += 1;
            continue;
        }
        assert_eq!(drawn, expected, "round {round}: {settings:?}");
    }
    assert!(near_a_border < 20, "{near_a_border}");
}

#[test]
fn greedy_takes_the_first_largest_after_penalties() {
    let settings = SamplerSettings {
        presence_penalty: 1.0,
        ..SamplerSettings::default()
    };
    let mut sampler = Sampler::new(settings, 0);
    let logits = [0.5, 3.0, 3.0, 2.5];
    let draw = |sampler: &Sampler| sampler.sample(&mut logits.to_vec(), 0, &[]).unwrap().token;
    assert_eq!(draw(&sampler), 1);
    sampler.observe(1);
    assert_eq!(draw(&sampler), 2);
    sampler.observe(2);
    assert_eq!(draw(&sampler), 3);
}

#[test]
fn frequencies_follow_the_distribution() {
    // A softmax over five tokens, 20000 draws at successive positions.
    let logits = [1.0f32, 0.0, -1.0, 0.5, -3.0];
    let mass: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    let draws = 20_000;
    let mut counts = [0u32; 5];
    for position in 0..draws {
        counts[token(&sampled(), &logits, position) as usize] += 1;
    }
    let statistic: f64 = counts
        .iter()
        .zip(logits)
        .map(|(&count, logit)| {
            let expected = draws as f64 * f64::from(logit).exp() / mass;
            (f64::from(count) - expected).powi(2) / expected
        })
        .sum();
    // The 99.9th percentile of chi-square with four degrees of freedom.
    assert!(statistic < 18.47, "{statistic}: {counts:?}");
}

#[test]
fn choices_and_seeds_draw_differently() {
    let logits = vec![0.0f32; 1000];
    let sequence = |choice, seed| -> Vec<u32> {
        let settings = SamplerSettings { seed, ..sampled() };
        let sampler = Sampler::new(settings, choice);
        (0..20)
            .map(|position| {
                sampler
                    .sample(&mut logits.clone(), position, &[])
                    .unwrap()
                    .token
            })
            .collect()
    };
    assert_eq!(sequence(0, 1), sequence(0, 1));
    assert_ne!(sequence(0, 1), sequence(1, 1));
    assert_ne!(sequence(0, 1), sequence(0, 2));
}

#[test]
fn a_draw_depends_on_history_and_position_but_not_on_earlier_draws() {
    let mut random = Random(12);
    let settings = SamplerSettings {
        repetition_penalty: 1.2,
        frequency_penalty: 0.3,
        top_p: 0.9,
        ..sampled()
    };
    let rows: Vec<Vec<f32>> = (0..30)
        .map(|_| (0..300).map(|_| random.unit() * 8.0).collect())
        .collect();
    let mut sampler = Sampler::new(settings.clone(), 3);
    sampler.observe_prompt(&[1, 2, 3]);
    let mut undisturbed = Vec::new();
    for (position, row) in (0..).zip(&rows) {
        let drawn = sampler
            .sample(&mut row.clone(), position, &[])
            .unwrap()
            .token;
        sampler.observe(drawn);
        undisturbed.push(drawn);
    }
    // Resumed at any point from the committed tokens alone.
    for start in 0..rows.len() {
        let mut resumed = Sampler::new(settings.clone(), 3);
        resumed.observe_prompt(&[1, 2, 3]);
        for &token in &undisturbed[..start] {
            resumed.observe(token);
        }
        let drawn = resumed
            .sample(&mut rows[start].clone(), start as u64, &[])
            .unwrap();
        assert_eq!(drawn.token, undisturbed[start]);
    }
}

#[test]
fn extremes_keep_to_the_rules() {
    let logits: Vec<f32> = (0..5000)
        .map(|token| ((token * 7919) % 5000) as f32 / 100.0)
        .collect();
    let top = (0u32..)
        .zip(&logits)
        .max_by(|left, right| left.1.total_cmp(right.1))
        .unwrap()
        .0;
    for settings in [
        SamplerSettings {
            temperature: 1e-12,
            ..sampled()
        },
        SamplerSettings {
            temperature: f32::MIN_POSITIVE / 4.0,
            ..sampled()
        },
        SamplerSettings {
            top_p: 1e-9,
            ..sampled()
        },
        SamplerSettings {
            top_k: 1,
            ..sampled()
        },
        SamplerSettings {
            min_p: 1.0,
            ..sampled()
        },
    ] {
        for position in 0..20 {
            assert_eq!(token(&settings, &logits, position), top, "{settings:?}");
        }
    }
    let hot = SamplerSettings {
        temperature: f32::MAX,
        ..sampled()
    };
    let drawn: std::collections::BTreeSet<u32> = (0..50)
        .map(|position| token(&hot, &logits, position))
        .collect();
    assert!(drawn.len() > 40);
}

#[test]
fn one_possible_token_is_drawn_and_none_is_an_error() {
    let mut logits = vec![f32::NEG_INFINITY; 300];
    logits[123] = -5.0;
    for settings in [
        sampled(),
        SamplerSettings::default(),
        SamplerSettings {
            top_p: 0.5,
            top_k: 7,
            ..sampled()
        },
    ] {
        assert_eq!(token(&settings, &logits, 9), 123);
        let sampler = Sampler::new(settings, 0);
        let refused = sampler.sample(&mut logits.clone(), 9, &[123]);
        assert_eq!(refused, Err(SampleError::NoCandidate));
        assert_eq!(
            sampler.sample(&mut [], 9, &[]),
            Err(SampleError::NoCandidate)
        );
    }
}

#[test]
fn non_finite_logits_are_an_error() {
    for value in [f32::NAN, f32::INFINITY] {
        for settings in [sampled(), SamplerSettings::default()] {
            let sampler = Sampler::new(settings, 0);
            let result = sampler.sample(&mut [0.0, value, 1.0], 0, &[]);
            assert_eq!(result, Err(SampleError::NotFinite));
        }
    }
}

#[test]
fn bias_decides_and_never_overflows() {
    let mut settings = SamplerSettings {
        logit_bias: vec![(2, f32::MAX), (3, f32::MIN), (99, 5.0)],
        ..sampled()
    };
    for position in 0..20 {
        assert_eq!(token(&settings, &[1e38, 1e38, 1e38, 1e38], position), 2);
    }
    settings.repetition_penalty = f32::MIN_POSITIVE;
    let mut sampler = Sampler::new(settings, 0);
    sampler.observe_prompt(&[0, 1, 2, 3]);
    let drawn = sampler
        .sample(&mut [1e38, 1e38, 1e38, 1e38], 0, &[])
        .unwrap();
    // Three logits stop at the largest number; the first of the equal candidates that the
    // draw hits is one of them.
    assert_ne!(drawn.token, 3);
}

#[test]
fn banned_tokens_are_never_drawn() {
    let settings = SamplerSettings {
        logit_bias: vec![(1, 100.0)],
        ..sampled()
    };
    let sampler = Sampler::new(settings, 0);
    for position in 0..200 {
        let drawn = sampler
            .sample(&mut [0.0, 0.0, 0.0, 0.0], position, &[1, 3, 77])
            .unwrap();
        assert!([0, 2].contains(&drawn.token));
    }
}

#[test]
fn log_probabilities_are_of_the_distribution_before_the_rules() {
    let mut random = Random(13);
    for length in [3usize, 100, 4096, 9000] {
        let logits: Vec<f32> = (0..length).map(|_| random.unit() * 15.0 - 7.0).collect();
        let exact = |token: u32| {
            let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            f64::from(logits[token as usize]) - sum.ln()
        };
        let settings = SamplerSettings {
            logprobs: Some(5),
            logit_bias: vec![(1, 50.0)],
            top_k: 3,
            ..sampled()
        };
        let sampler = Sampler::new(settings, 0);
        let Choice { token, logprobs } = sampler.sample(&mut logits.clone(), 4, &[]).unwrap();
        assert_eq!(token, 1, "the bias decides");
        assert_eq!(logprobs.len(), 1 + length.min(5));
        assert_eq!(logprobs[0].token, token);
        for entry in &logprobs {
            assert!(
                (f64::from(entry.logprob) - exact(entry.token)).abs() < 1e-6,
                "{entry:?}"
            );
        }
        assert!(
            logprobs[1..]
                .windows(2)
                .all(|pair| pair[0].logprob >= pair[1].logprob)
        );
    }
}

#[test]
fn logprobs_of_zero_alternatives_are_the_token_alone() {
    let settings = SamplerSettings {
        logprobs: Some(0),
        ..SamplerSettings::default()
    };
    let sampler = Sampler::new(settings, 0);
    let choice = sampler.sample(&mut [0.0, 1.0], 0, &[]).unwrap();
    assert_eq!(choice.logprobs.len(), 1);
    // Nothing is certain, yet nothing is above certainty.
    let lone = sampler.sample(&mut [7.0], 0, &[]).unwrap();
    assert_eq!(lone.logprobs[0].logprob, 0.0);
}
