use super::{Activations, Block};
use crate::reference::quantize_activation;
use crate::sample::Sample;
use crate::{Kernels, Pool};

/// The blocks of `values` (rows, cols) by the specification.
fn expected(values: &[f32], rows: usize, cols: usize) -> Vec<Block> {
    let mut blocks = vec![Block::default(); rows * cols.div_ceil(32)];
    for (row, values) in values.chunks(cols).enumerate() {
        for (index, block) in quantize_activation(values).into_iter().enumerate() {
            let sum = block.sums[0] + block.sums[1];
            blocks[index * rows + row] = Block {
                codes: std::array::from_fn(|k| *block.codes[4 * k..].first_chunk().unwrap()),
                scale: block.scale,
                scaled_sum: block.scale * sum as f32,
                sums: block.sums,
            };
        }
    }
    blocks
}

fn bits(block: &Block) -> (Block, u32, u32) {
    // NaN is not equal to itself, and zeros of both signs are equal.
    let scales = (block.scale.to_bits(), block.scaled_sum.to_bits());
    (
        Block {
            scale: 0.0,
            scaled_sum: 0.0,
            ..*block
        },
        scales.0,
        scales.1,
    )
}

fn check(values: &[f32], rows: usize, cols: usize) {
    let expected: Vec<_> = expected(values, rows, cols).iter().map(bits).collect();
    for kernels in Kernels::available() {
        for threads in 1..=3 {
            let mut activations = Activations::new();
            activations.resize(rows, cols);
            activations.values_mut().copy_from_slice(values);
            kernels.quantize(&Pool::new(threads), &mut activations);
            let found: Vec<_> = activations.blocks().iter().map(bits).collect();
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
    activations.blocks();
}
