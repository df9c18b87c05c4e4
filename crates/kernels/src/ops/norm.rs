//! RMS normalisation (Zhang and Sennrich, 2019): `out_i = x_i / sqrt(mean(x^2) + eps) * w_i`.

use super::{PARALLEL_ELEMENTS_MIN, load_padded, rows_per_chunk, store_partial};
use crate::simd::{Kernel, LANES, Simd};
use crate::{Kernels, Pool};

struct Norm<'a> {
    /// (rows, cols)
    input: &'a [f32],
    /// (cols)
    weight: &'a [f32],
    epsilon: f32,
    /// (rows, cols)
    out: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let cols = self.weight.len();
        for (x, out) in self
            .input
            .chunks_exact(cols)
            .zip(self.out.chunks_exact_mut(cols))
        {
            let mut squares = simd.splat(0.0);
            for piece in x.chunks(LANES) {
                let lanes = load_padded(simd, piece);
                squares = simd.fma(lanes, lanes, squares);
            }
            let mean = simd.fold_sum(squares) / cols as f32;
            let scale = simd.splat(1.0 / (mean + self.epsilon).sqrt());
            let pieces = x.chunks(LANES).zip(self.weight.chunks(LANES));
            for ((x, weight), out) in pieces.zip(out.chunks_mut(LANES)) {
                let normal = simd.mul(load_padded(simd, x), scale);
                store_partial(simd, simd.mul(normal, load_padded(simd, weight)), out);
            }
        }
    }
}

impl Kernels {
    /// Normalises every row of `input` (rows, weight.len()) into `out` of the same shape.
    /// With a head's weight it normalises per head.
    ///
    /// # Panics
    /// If the lengths do not fit each other.
    pub fn rms_norm(
        &self,
        pool: &Pool,
        input: &[f32],
        weight: &[f32],
        epsilon: f32,
        out: &mut [f32],
    ) {
        let cols = weight.len();
        assert_eq!(input.len(), out.len(), "rows in and out");
        assert_eq!(input.len() % cols, 0, "whole rows");
        if input.len() < PARALLEL_ELEMENTS_MIN {
            return self.tier.launch(Norm {
                input,
                weight,
                epsilon,
                out,
            });
        }
        let chunk = rows_per_chunk(cols) * cols;
        pool.for_each_chunk(out, chunk, &|index, out| {
            let input = &input[index * chunk..][..out.len()];
            self.tier.launch(Norm {
                input,
                weight,
                epsilon,
                out,
            });
        });
    }

    /// [`Self::rms_norm`] in place.
    ///
    /// # Panics
    /// If `rows` is not whole rows.
    pub fn rms_norm_in_place(&self, pool: &Pool, rows: &mut [f32], weight: &[f32], epsilon: f32) {
        let cols = weight.len();
        assert_eq!(rows.len() % cols, 0, "whole rows");
        let chunk = if rows.len() < PARALLEL_ELEMENTS_MIN {
            rows.len().max(1)
        } else {
            rows_per_chunk(cols) * cols
        };
        pool.for_each_chunk(rows, chunk, &|_index, out| {
            let input = out.to_vec();
            self.tier.launch(Norm {
                input: &input,
                weight,
                epsilon,
                out,
            });
        });
    }
}
