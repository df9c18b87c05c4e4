use super::*;
use crate::sample::Sample;
use crate::{Kernels, dequantize_row};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_row_of_the_tiles_is_the_row_of_the_file() {
    let mut sample = Sample(2);
    for format in Format::ALL {
        for rows in [1, 15, 16, 17, 40] {
            let cols = format.block_elements() * (1 + sample.below(4));
            let source = sample.weights(format, rows, cols);
            let mut bytes = vec![0xaa; tile_bytes(format, rows, cols)];
            repack(format, rows, cols, &source, &mut bytes);
            let tiles = Tiles::new(format, rows, cols, &bytes).unwrap();
            for (row, source) in source.chunks_exact(format.row_bytes(cols)).enumerate() {
                let (mut expected, mut found) = (vec![0.0; cols], vec![1.0; cols]);
                dequantize_row(format, source, &mut expected);
                for kernels in Kernels::available() {
                    kernels.gather_row(&tiles, row, &mut found);
                    let place = format!("{format:?} row {row} of {rows}, {:?}", kernels.isa());
                    assert_eq!(bits(&found), bits(&expected), "{place}");
                }
            }
        }
    }
}

/// Every bit of the file is one bit of the tiles: setting it sets exactly one.
#[test]
fn repacking_is_a_permutation_of_bits() {
    for format in Format::ALL {
        let (rows, cols) = (STRIP_ROWS, format.block_elements());
        let mut source = vec![0; rows * format.row_bytes(cols)];
        let mut zero = vec![0; source.len()];
        repack(format, rows, cols, &source, &mut zero);
        let mut reached = vec![0u8; source.len()];
        for bit in 0..8 * source.len() {
            source[bit / 8] = 1 << (bit % 8);
            let mut tiles = vec![0; source.len()];
            repack(format, rows, cols, &source, &mut tiles);
            source[bit / 8] = 0;
            let changed: Vec<u8> = tiles.iter().zip(&zero).map(|(a, b)| a ^ b).collect();
            let count: u32 = changed.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(count, 1, "{format:?} bit {bit}");
            for (reached, changed) in reached.iter_mut().zip(changed) {
                *reached |= changed;
            }
        }
        assert!(reached.iter().all(|byte| *byte == 0xff), "{format:?}");
    }
}

#[test]
fn a_strip_is_repacked_alone_as_within_the_matrix() {
    let mut sample = Sample(3);
    for format in Format::ALL {
        let (rows, cols) = (37, 2 * format.block_elements());
        let source = sample.weights(format, rows, cols);
        let mut whole = vec![0; tile_bytes(format, rows, cols)];
        repack(format, rows, cols, &source, &mut whole);
        let rows_bytes = STRIP_ROWS * format.row_bytes(cols);
        for (source, expected) in source.chunks(rows_bytes).zip(whole.chunks(rows_bytes)) {
            let mut strip = vec![0xaa; strip_bytes(format, cols)];
            repack_strip(format, cols, source, &mut strip);
            assert_eq!(strip, expected, "{format:?}");
        }
    }
}

#[test]
fn bytes_of_another_matrix_are_refused() {
    let bytes = vec![0; tile_bytes(Format::Q4K, 17, 512)];
    assert_eq!(bytes.len(), 2 * 16 * 288);
    assert!(Tiles::new(Format::Q4K, 17, 512, &bytes).is_ok());
    assert_eq!(
        Tiles::new(Format::Q4K, 33, 512, &bytes).unwrap_err(),
        TileError::Size {
            expected: 3 * 16 * 288,
            found: 2 * 16 * 288
        }
    );
    assert_eq!(
        Tiles::new(Format::Q4K, 17, 288, &bytes).unwrap_err(),
        TileError::PartialBlock {
            format: Format::Q4K,
            cols: 288
        }
    );
    assert!(Tiles::new(Format::F32, usize::MAX, usize::MAX, &bytes).is_err());
}
