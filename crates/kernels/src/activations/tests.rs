use super::{Activations, Block, Sums};
use crate::reference::quantize_activation;
use crate::sample::Sample;
use crate::{Kernels, Pool};

fn sums(codes: &[i8]) -> Sums {
    let of = |places: [usize; 2]| {
        let places = (0..codes.len()).filter(|place| places.contains(&(place % 4)));
        places.map(|place| i16::from(codes[place])).sum::<i16>()
    };
    Sums {
        total: codes.iter().map(|code| i32::from(*code)).sum(),
        pairs: [of([0, 1]), of([2, 3])],
    }
}

/// The blocks of `values` (rows, cols) by the specification.
fn expected(values: &[f32], rows: usize, cols: usize) -> Vec<Block> {
    let mut blocks = vec![Block::default(); rows * cols.div_ceil(32)];
    for (row, values) in values.chunks(cols).enumerate() {
        for (index, block) in quantize_activation(values).into_iter().enumerate() {
            let total: i32 = block.sums.iter().sum();
            let (first, last) = block.codes.split_at(16);
            blocks[index * rows + row] = Block {
                codes: std::array::from_fn(|k| *block.codes[4 * k..].first_chunk().unwrap()),
                scale: block.scale,
                scaled_sum: block.scale * total as f32,
                sums: sums(&block.codes),
                half_sums: [sums(first), sums(last)],
            };
        }
    }
    blocks
}

/// Every bit of the blocks; NaN equals itself.
fn bits<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Vec<(Block, [u32; 2])> {
    let bits = blocks.into_iter().map(|block| {
        let floats = [block.scale, block.scaled_sum].map(f32::to_bits);
        let mut block = *block;
        (block.scale, block.scaled_sum) = (0.0, 0.0);
        (block, floats)
    });
    bits.collect()
}

fn check(values: &[f32], rows: usize, cols: usize) {
    let expected = bits(&expected(values, rows, cols));
    for kernels in Kernels::available() {
        for threads in 1..=3 {
            let mut activations = Activations::new();
            activations.resize(rows, cols);
            activations.values_mut().copy_from_slice(values);
            kernels.quantize(&Pool::new(threads), &mut activations);
            let found = bits(activations.blocks().flatten());
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
