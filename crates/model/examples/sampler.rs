//! Time of one draw from a large vocabulary, by what the request asks for.
//!
//! `cargo run --release -p relight-model --example sampler [VOCABULARY]`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints"
)]

use std::time::Instant;

use relight_model::sampler::{Sampler, SamplerSettings};

/// That of Gemma 3.
const VOCABULARY: usize = 262_144;
const REPETITIONS: usize = 41;

/// Logits like a model's: most far below a few, from a fixed seed.
fn logits(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        f32::from(u16::try_from(state >> 48).unwrap_or(0)) / 65536.0
    };
    let normal = |uniform: &mut dyn FnMut() -> f32| (0..12).map(|_| uniform()).sum::<f32>() - 6.0;
    (0..count).map(|_| 2.5 * normal(&mut uniform)).collect()
}

fn main() {
    let vocabulary = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let logits = logits(vocabulary.unwrap_or(VOCABULARY));
    let sampled = SamplerSettings {
        temperature: 0.8,
        ..SamplerSettings::default()
    };
    for (name, settings) in [
        ("greedy", SamplerSettings::default()),
        (
            "greedy, 5 logprobs",
            SamplerSettings {
                logprobs: Some(5),
                ..SamplerSettings::default()
            },
        ),
        ("temperature", sampled.clone()),
        (
            "top_k 40",
            SamplerSettings {
                top_k: 40,
                ..sampled.clone()
            },
        ),
        (
            "top_p 0.95",
            SamplerSettings {
                top_p: 0.95,
                ..sampled.clone()
            },
        ),
        (
            "min_p 0.05",
            SamplerSettings {
                min_p: 0.05,
                ..sampled.clone()
            },
        ),
        (
            "top_k 40, top_p 0.95, min_p 0.05",
            SamplerSettings {
                top_k: 40,
                top_p: 0.95,
                min_p: 0.05,
                ..sampled
            },
        ),
    ] {
        let sampler = Sampler::new(settings, 0);
        let mut times = Vec::new();
        let mut sum = 0_u64;
        for position in 0..REPETITIONS as u64 {
            let mut scratch = logits.clone();
            let started = Instant::now();
            let drawn = sampler.sample(&mut scratch, position, &[]);
            times.push(started.elapsed());
            sum += drawn.map_or(0, |choice| u64::from(choice.token));
        }
        times.sort_unstable();
        let median = times.get(REPETITIONS / 2).copied().unwrap_or_default();
        println!("{name:34} {median:9.1?}   (tokens {sum})");
    }
}
