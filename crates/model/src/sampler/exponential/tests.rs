use super::{exp, ln};

#[test]
fn the_exponential_is_right_to_two_parts_in_ten_million() {
    let mut worst = 0.0f64;
    for step in 0..=870_000 {
        let x = -(step as f32) / 10_000.0;
        let exact = f64::from(x).exp();
        worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        if x <= -86.9 {
            break;
        }
    }
    assert!(worst < 2e-7, "{worst}");
}

#[test]
fn the_exponential_keeps_its_ends() {
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(-0.0), 1.0);
    for x in [-87.0, -88.0, -1e30, f32::MIN, f32::NEG_INFINITY] {
        assert_eq!(exp(x), 0.0);
    }
    assert!(exp(-86.99) > 0.0);
}

#[test]
fn the_logarithm_is_right_to_a_few_units_in_the_last_place() {
    for step in 1..200_000 {
        let x = f64::from(step) * 1.37 + 1.0 / f64::from(step);
        let exact = x.ln();
        assert!((ln(x) - exact).abs() <= 2e-15 * exact.abs().max(1.0), "{x}");
    }
    assert_eq!(ln(1.0), 0.0);
}

/// The same everywhere is the point, so some bits are written down.
#[test]
fn the_bits_are_the_recorded_ones() {
    let exponentials = [-0.1f32, -1.0, -2.5, -10.0, -50.0].map(|x| exp(x).to_bits());
    let logarithms = [1.5f64, 2.0, 10.0, 262_144.0].map(|x| ln(x).to_bits());
    assert_eq!(
        exponentials,
        [
            0x3f67_a36d,
            0x3ebc_5ab2,
            0x3da8_1c2e,
            0x383e_6bce,
            0x1b69_2beb
        ]
    );
    assert_eq!(
        logarithms,
        [
            0x3fd9_f323_ecbf_984c,
            0x3fe6_2e42_fefa_39ef,
            0x4002_6bb1_bbb5_5515,
            0x4028_f40b_5ed9_812d
        ]
    );
}
