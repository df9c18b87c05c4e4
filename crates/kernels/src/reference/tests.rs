use super::{ActivationBlock, dequantize_row, dot, quantize_activation, quantize_kv};
use crate::Format;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn format_named(name: &str) -> Format {
    let plain = name.replace("_K", "K").replace("BF16", "Bf16");
    Format::ALL
        .into_iter()
        .find(|format| format!("{format:?}") == plain)
        .unwrap()
}

#[test]
fn weights_have_the_recorded_values() {
    let mut seen = Vec::new();
    for line in include_str!("golden.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [name, block, weights] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let format = format_named(name);
        let expected: Vec<u32> = bytes(weights)
            .as_chunks()
            .0
            .iter()
            .map(|bits| u32::from_be_bytes(*bits))
            .collect();
        let mut out = vec![f32::NAN; format.block_elements()];
        dequantize_row(format, &bytes(block), &mut out);
        let found: Vec<u32> = out.iter().map(|value| value.to_bits()).collect();
        assert_eq!(found, expected, "{name}");
        seen.push(format);
    }
    for format in Format::ALL {
        assert!(seen.contains(&format), "{format:?} has no recorded block");
    }
}

#[test]
fn an_activation_block_spans_its_largest_value() {
    let mut row = [0.25f32; 32];
    row[3] = -2.0;
    row[20] = 1.0;
    let [block] = quantize_activation(&row).try_into().unwrap();
    assert_eq!(block.scale, 2.0 / 127.0);
    assert_eq!(
        (block.codes[0], block.codes[3], block.codes[20]),
        (16, -127, 64)
    );
    assert_eq!(block.sums, [15 * 16 - 127, 15 * 16 + 64]);
}

#[test]
fn codes_round_ties_to_even() {
    let mut row = [0.0f32; 32];
    row[0] = 127.0;
    row[1..7].copy_from_slice(&[0.5, 1.5, 2.5, -0.5, -1.5, -2.5]);
    let [block] = quantize_activation(&row).try_into().unwrap();
    assert_eq!(block.codes[..7], [127, 0, 2, 2, 0, -2, -2]);
}

#[test]
fn zeros_and_vanishing_values_make_a_zero_block() {
    let zero = ActivationBlock {
        codes: [0; 32],
        scale: 0.0,
        sums: [0; 2],
    };
    assert_eq!(quantize_activation(&[-0.0; 32]), [zero]);
    assert_eq!(quantize_activation(&[f32::from_bits(1); 32]), [zero]);
    assert_eq!(quantize_activation(&[2f32.powi(-121); 32]), [zero]);
    let [least] = quantize_activation(&[2f32.powi(-120); 32])
        .try_into()
        .unwrap();
    assert_eq!(least.codes, [127; 32]);
}

#[test]
fn a_value_that_is_not_finite_makes_the_product_nan() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut row = [1.0f32; 32];
        row[17] = bad;
        assert!(quantize_activation(&row)[0].scale.is_nan());
        assert!(dot(Format::Q8_0, &[0; 34], &row).is_nan());
    }
}

#[test]
fn a_row_that_ends_within_a_block_goes_on_with_zeros() {
    let whole = [1.0f32; 40];
    let blocks = quantize_activation(&whole);
    assert_eq!(blocks.len(), 2);
    assert_eq!(blocks[1].codes[..8], [127; 8]);
    assert_eq!(blocks[1].codes[8..], [0; 24]);
}

/// The chain on quantized activations is close to the plain sum over dequantized weights.
#[test]
fn the_chain_approximates_the_product_of_the_weights() {
    let activations: Vec<f32> = (0..256u32)
        .map(|k| ((k * 37 % 101) as f32 - 50.0) / 25.0)
        .collect();
    for line in include_str!("golden.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [name, block, _] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let format = format_named(name);
        let count = format.block_elements();
        let mut weights = vec![0.0; count];
        dequantize_row(format, &bytes(block), &mut weights);
        let terms = weights
            .iter()
            .zip(&activations)
            .map(|(w, x)| f64::from(*w) * f64::from(*x));
        let sizes = weights
            .iter()
            .zip(&activations)
            .map(|(w, x)| f64::from(w.abs()) * f64::from(x.abs()));
        let (exact, size): (f64, f64) = (terms.sum(), sizes.sum());
        let chain = f64::from(dot(format, &bytes(block), &activations[..count]));
        assert!(
            (chain - exact).abs() <= 0.01 * size,
            "{name}: {chain} is not {exact}"
        );
    }
}

#[test]
fn keys_and_values_have_one_scale_whatever_the_size_of_a_head() {
    let mut head = vec![0.25f32; 80];
    head[70] = -2.0;
    let kept = quantize_kv(&head);
    assert_eq!(kept.scale, 2.0 / 127.0);
    assert_eq!(
        (kept.codes[0], kept.codes[70], kept.codes[79]),
        (16, -127, 16)
    );
    for tiny in [0.0, -0.0, 2f32.powi(-121)] {
        let kept = quantize_kv(&[tiny; 16]);
        assert_eq!((kept.codes, kept.scale), (vec![0; 16], 0.0));
    }
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        head[3] = bad;
        assert!(quantize_kv(&head).scale.is_nan());
    }
}
