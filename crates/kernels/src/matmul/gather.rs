//! One row of a matrix, dequantized from its tiles: the lookup of an embedding.

use super::float::{Bf16, Element, F16, F32};
use crate::simd::{Kernel, LANES, Simd};
use crate::tiles::decode::{self, Decode};
use crate::tiles::{GROUP_COLS, STRIP_ROWS, Tiles};
use crate::{Format, Kernels};

struct GatherRow<'a> {
    /// Of the strip that holds the row.
    strip: &'a [u8],
    format: Format,
    lane: usize,
    /// (cols)
    out: &'a mut [f32],
}

impl Kernel for GatherRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.format {
            Format::F32 => self.float::<F32, S>(simd),
            Format::F16 => self.float::<F16, S>(simd),
            Format::Bf16 => self.float::<Bf16, S>(simd),
            Format::Q8_0 => self.quantized::<decode::Q8_0, S>(simd),
            Format::Q4_0 => self.quantized::<decode::Q4_0, S>(simd),
            Format::Q4_1 => self.quantized::<decode::Q4_1, S>(simd),
            Format::Q5_0 => self.quantized::<decode::Q5_0, S>(simd),
            Format::Q5_1 => self.quantized::<decode::Q5_1, S>(simd),
            Format::Q4K => self.quantized::<decode::Q4K, S>(simd),
            Format::Q5K => self.quantized::<decode::Q5K, S>(simd),
            Format::Q6K => self.quantized::<decode::Q6K, S>(simd),
        }
    }
}

impl GatherRow<'_> {
    #[inline(always)]
    fn float<E: Element, S: Simd>(self, simd: S) {
        let columns = self.strip.chunks_exact(E::BYTES * LANES);
        for (column, out) in columns.zip(self.out) {
            *out = lane_of(simd, E::load(simd, column), self.lane);
        }
    }

    #[inline(always)]
    fn quantized<D: Decode, S: Simd>(self, simd: S) {
        let groups = self.out.as_chunks_mut::<GROUP_COLS>().0;
        for (index, out) in groups.iter_mut().enumerate() {
            let block = &self.strip[index / D::GROUPS * D::BLOCK_BYTES..][..D::BLOCK_BYTES];
            let group = D::group(simd, &D::block(simd, block), index % D::GROUPS);
            let [first, last] = group.scales.d;
            let d = [
                lane_of(simd, first, self.lane),
                lane_of(simd, last, self.lane),
            ];
            let m = lane_of(simd, group.scales.m, self.lane);
            for (vector, out) in group.codes.into_iter().zip(out.as_chunks_mut::<4>().0) {
                let mut codes = [0; 64];
                simd.store_codes(vector, &mut codes);
                *out = codes.as_chunks().0[self.lane]
                    .map(|code: u8| (i32::from(code) - D::OFFSET) as f32);
            }
            let halves = out.as_chunks_mut::<{ GROUP_COLS / 2 }>().0;
            for (half, d) in halves.iter_mut().zip(d) {
                *half = half.map(|code| if D::HAS_MIN { code * d + m } else { code * d });
            }
        }
    }
}

#[inline(always)]
fn lane_of<S: Simd>(simd: S, value: S::F, lane: usize) -> f32 {
    let mut lanes = [0.0; LANES];
    simd.store(value, &mut lanes);
    lanes[lane]
}

impl Kernels {
    /// Writes row `row` of the weights, exactly as [`crate::dequantize_row`] reads it from
    /// the file.
    ///
    /// # Panics
    /// If there is no such row, or `out` does not have its columns.
    pub fn gather_row(&self, tiles: &Tiles<'_>, row: usize, out: &mut [f32]) {
        assert!(row < tiles.rows(), "a row of the matrix");
        assert_eq!(out.len(), tiles.cols(), "a whole row");
        let bytes = tiles.strip_bytes();
        self.tier.launch(GatherRow {
            strip: &tiles.bytes()[row / STRIP_ROWS * bytes..][..bytes],
            format: tiles.format(),
            lane: row % STRIP_ROWS,
            out,
        });
    }
}
