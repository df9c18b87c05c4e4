//! Scaled rotations.

use super::{RopeKind, RopeScaling, RopeSpec, Yarn};

fn yarn() -> RopeSpec {
    RopeSpec {
        kind: RopeKind::Neox,
        dims: 128,
        base: 1e6,
        scaling: RopeScaling::Yarn(Yarn {
            factor: 4.0,
            original_context: 32_768,
            fast_turns: 32.0,
            slow_turns: 1.0,
            attention_factor: 1.0,
        }),
        divisors: None,
    }
}

/// Pairs 24 to 39 with Qwen 2.5's settings, as transformers computes them.
const RAMP: [f32; 16] = [
    1.04615, 1.09677, 1.15254, 1.21429, 1.28302, 1.36, 1.44681, 1.54545, 1.65854, 1.78947, 1.94286,
    2.125, 2.34483, 2.61538, 2.95652, 3.4,
];

#[test]
fn yarn_keeps_fast_pairs_divides_slow_ones_and_ramps_between() {
    let divisors = yarn().scaling_divisors().unwrap();
    assert_eq!(divisors.len(), 64);
    assert!(divisors[..24].iter().all(|divisor| *divisor == 1.0));
    assert!(divisors[40..].iter().all(|divisor| *divisor == 4.0));
    for (divisor, expected) in divisors[24..40].iter().zip(RAMP) {
        assert!(
            (divisor - expected).abs() < 1e-5,
            "{divisor}, not {expected}"
        );
    }
}

#[test]
fn yarn_sharpens_scores() {
    // Of queries and keys each, as transformers computes it.
    let magnitude = 1.138_629_4;
    assert!((yarn().score_factor() - magnitude * magnitude).abs() < 1e-6);
}
