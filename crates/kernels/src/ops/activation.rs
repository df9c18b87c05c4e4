//! Element-wise operations between matrix products.

use super::{PARALLEL_ELEMENTS_MIN, load_padded, math, store_partial};
use crate::simd::{Kernel, LANES, Simd};
use crate::{Kernels, Pool};

#[derive(Clone, Copy)]
enum Gate {
    Silu,
    Gelu,
}

struct GateMul<'a> {
    kind: Gate,
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for GateMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (gate, up) in self.gate.chunks_mut(LANES).zip(self.up.chunks(LANES)) {
            let x = load_padded(simd, gate);
            let active = match self.kind {
                Gate::Silu => math::silu(simd, x),
                Gate::Gelu => math::gelu(simd, x),
            };
            store_partial(simd, simd.mul(active, load_padded(simd, up)), gate);
        }
    }
}

struct Softcap<'a> {
    target: &'a mut [f32],
    cap: f32,
}

impl Kernel for Softcap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let cap = simd.splat(self.cap);
        for piece in self.target.chunks_mut(LANES) {
            let bent = math::tanh(simd, simd.div(load_padded(simd, piece), cap));
            store_partial(simd, simd.mul(bent, cap), piece);
        }
    }
}

/// Chunk length for an element-wise pass over `len` elements.
fn chunk_len(len: usize) -> usize {
    if len < PARALLEL_ELEMENTS_MIN {
        len.max(1)
    } else {
        PARALLEL_ELEMENTS_MIN / 4
    }
}

impl Kernels {
    fn gate_mul(&self, pool: &Pool, kind: Gate, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "gate and up");
        let chunk = chunk_len(gate.len());
        pool.for_each_chunk(gate, chunk, &|index, gate| {
            let up = &up[index * chunk..][..gate.len()];
            self.tier.launch(GateMul { kind, gate, up });
        });
    }

    /// `gate = silu(gate) * up`, element by element.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn silu_mul(&self, pool: &Pool, gate: &mut [f32], up: &[f32]) {
        self.gate_mul(pool, Gate::Silu, gate, up);
    }

    /// `gate = gelu(gate) * up`, element by element, with the tanh form of GELU.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn gelu_mul(&self, pool: &Pool, gate: &mut [f32], up: &[f32]) {
        self.gate_mul(pool, Gate::Gelu, gate, up);
    }

    /// `target = cap * tanh(target / cap)`, element by element.
    pub fn softcap(&self, pool: &Pool, target: &mut [f32], cap: f32) {
        let chunk = chunk_len(target.len());
        pool.for_each_chunk(target, chunk, &|_index, target| {
            self.tier.launch(Softcap { target, cap });
        });
    }

    /// `target += addend`, element by element.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add(&self, pool: &Pool, target: &mut [f32], addend: &[f32]) {
        assert_eq!(target.len(), addend.len(), "target and addend");
        let chunk = chunk_len(target.len());
        pool.for_each_chunk(target, chunk, &|index, target| {
            let addend = &addend[index * chunk..][..target.len()];
            target
                .iter_mut()
                .zip(addend)
                .for_each(|(target, addend)| *target += addend);
        });
    }

    /// `target *= factor`, element by element.
    pub fn scale(&self, target: &mut [f32], factor: f32) {
        target.iter_mut().for_each(|target| *target *= factor);
    }
}
