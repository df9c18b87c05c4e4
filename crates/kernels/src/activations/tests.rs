use super::{Activations, Codes};
use crate::reference::quantize_activation;
use crate::sample::Sample;
use crate::{Kernels, Pool};

/// Codes, and the bits of scale, scaled sum and sums.
type Bits = (Codes, [u32; 5]);

/// The blocks of `values` (rows, cols) by the specification.
fn expected(values: &[f32], rows: usize, cols: usize) -> Vec<Bits> {
    let mut blocks = vec![Bits::default(); rows * cols.div_ceil(32)];
    for (row, values) in values.chunks(cols).enumerate() {
        for (index, block) in quantize_activation(values).into_iter().enumerate() {
            let [first, last] = block.sums.map(|sum| sum as f32);
            let sum = first + last;
            let scales = [block.scale, block.scale * sum, sum, first, last];
            let codes = std::array::from_fn(|k| *block.codes[4 * k..].first_chunk().unwrap());
            blocks[index * rows + row] = (codes, scales.map(f32::to_bits));
        }
    }
    blocks
}

fn found(activations: &Activations) -> Vec<Bits> {
    let blocks = activations
        .blocks()
        .flat_map(|(codes, scales)| codes.iter().zip(scales));
    let bits = blocks.map(|(codes, scales)| {
        let [first, last] = scales.half_sums;
        let scales = [scales.scale, scales.scaled_sum, scales.sum, first, last];
        (*codes, scales.map(f32::to_bits))
    });
    bits.collect()
}

fn check(values: &[f32], rows: usize, cols: usize) {
    let expected = expected(values, rows, cols);
    for kernels in Kernels::available() {
        for threads in 1..=3 {
            let mut activations = Activations::new();
            activations.resize(rows, cols);
            activations.values_mut().copy_from_slice(values);
            kernels.quantize(&Pool::new(threads), &mut activations);
            let found = found(&activations);
            assert_eq!(found, expected, "{rows} x {cols}, {:?}", kernels.isa());
        }
    }
}

#[test]
fn every_tier_quantizes_as_specified() {
    let mut sample = Sample(1);
    for _ in 0..20 {
        let (rows, cols) = (1 + sample.below(5), 1 + sample.below(300));
        let values = sample.activations(rows, cols);
        check(&values, rows, cols);
    }
    check(&sample.activations(40, 1024), 40, 1024);
}

#[test]
fn values_that_are_not_finite_spoil_their_block_only() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 15, 16, 31] {
            let mut values = vec![1.0; 96];
            values[32 + at] = bad;
            check(&values, 1, 96);
        }
    }
}

#[test]
#[should_panic(expected = "activations are quantized before they are multiplied")]
fn values_written_after_quantizing_are_not_multiplied_with_old_codes() {
    let mut activations = Activations::new();
    activations.resize(1, 32);
    let [kernels, ..] = Kernels::available()[..] else {
        return;
    };
    kernels.quantize(&Pool::new(1), &mut activations);
    activations.values_mut()[0] = 1.0;
    assert_eq!(activations.blocks().count(), 0);
}
