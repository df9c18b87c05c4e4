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

#[test]
fn yarn_keeps_fast_pairs_divides_slow_ones_and_ramps_between() {
    // Qwen 2.5's settings. With 32768 tokens a pair makes 32 turns at 23.6 and one at 39.7.
    let divisors = yarn().scaling_divisors().unwrap();
    assert_eq!(divisors.len(), 64);
    assert!(divisors[..=23].iter().all(|divisor| *divisor == 1.0));
    assert!(divisors[40..].iter().all(|divisor| *divisor == 4.0));
    assert!(divisors[23..=40].is_sorted_by(|a, b| a < b));
    // Half-way the frequency is the mean of the whole and the quarter.
    let middle = 1.0 / (0.5 * (1.0 + 0.25));
    assert!((divisors[31] - middle).abs() < 0.1 && (divisors[32] - middle).abs() < 0.1);
}

#[test]
fn yarn_sharpens_scores() {
    let magnitude = 0.1 * 4f32.ln() + 1.0;
    assert!((yarn().score_factor() - magnitude * magnitude).abs() < 1e-6);
}
