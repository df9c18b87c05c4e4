//! The weights arena: where each tensor of a model lies in it, and how it gets there.
//!
//! ```text
//! arena := tensor*          each at a multiple of 64 bytes from the start
//! matrix: its tiles (relight_kernels::tiles), as many bytes as in the file
//! vector: f32, little-endian
//! ```
//!
//! The plan is a function of the description alone, so that whoever maps a finished arena
//! finds everything without reading the weights' file again.

#![expect(
    clippy::indexing_slicing,
    reason = "the plan is made with the tables it indexes; a wrong bound panics and is contained"
)]

use std::ops::Range;

use relight_gguf::Gguf;
use relight_kernels::{
    Pool, STRIP_ROWS, TileError, Tiles, dequantize_row, repack_strip, strip_bytes, tile_bytes,
};

use crate::spec::{Matrix, MatrixId, Spec, Vector};

/// Tensors begin on cache lines.
const ALIGNMENT: usize = 64;

/// Where the tensors of one model lie in its arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightsPlan {
    /// By [`MatrixId`].
    matrices: Vec<Range<usize>>,
    /// By [`crate::spec::VectorId`].
    vectors: Vec<Range<usize>>,
    bytes: usize,
}

/// How far the building of an arena has come: one tensor is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildProgress {
    /// Bytes of the file's tensors that are in the arena now.
    pub done_bytes: u64,
    /// Bytes of all tensors.
    pub total_bytes: u64,
    /// The bytes of the file that are not needed any more.
    pub source: Range<usize>,
}

/// The arena is not the one of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a weights arena of {found} bytes; this model needs {expected}")]
pub struct WrongArena {
    pub expected: usize,
    pub found: usize,
}

impl WeightsPlan {
    #[must_use]
    pub fn new(spec: &Spec) -> Self {
        let mut bytes = 0usize;
        let mut place = |tensor_bytes: usize| {
            let start = bytes.next_multiple_of(ALIGNMENT);
            bytes = start + tensor_bytes;
            start..bytes
        };
        let matrices = spec.matrices.iter();
        let matrices =
            matrices.map(|matrix| place(tile_bytes(matrix.format, matrix.rows, matrix.cols)));
        let matrices = matrices.collect();
        let vectors = spec.vectors.iter();
        let vectors = vectors
            .map(|vector| place(vector.len * size_of::<f32>()))
            .collect();
        Self {
            matrices,
            vectors,
            bytes,
        }
    }

    /// Bytes of the arena.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills `arena` from the model's file, tensor by tensor, and reports each. The file is
    /// read once from front to back of each tensor.
    ///
    /// # Errors
    /// `WrongArena` if its length is not [`Self::bytes`].
    ///
    /// # Panics
    /// If `spec` does not describe `gguf`, or this is not its plan.
    pub fn build(
        &self,
        (spec, gguf): (&Spec, &Gguf<'_>),
        arena: &mut [u8],
        pool: &Pool,
        progress: &mut dyn FnMut(BuildProgress),
    ) -> Result<(), WrongArena> {
        self.check(arena)?;
        let total_bytes = gguf.tensors().iter();
        let total_bytes = total_bytes
            .map(|tensor| tensor.data_range().len() as u64)
            .sum();
        let mut done_bytes = 0;
        let mut report = |source: Range<usize>| {
            done_bytes += source.len() as u64;
            progress(BuildProgress {
                done_bytes,
                total_bytes,
                source,
            });
        };
        for (matrix, place) in spec.matrices.iter().zip(&self.matrices) {
            let (source, range) = source(gguf, &matrix.name);
            write_matrix(matrix, source, &mut arena[place.clone()], pool);
            report(range);
        }
        for (vector, place) in spec.vectors.iter().zip(&self.vectors) {
            let (source, range) = source(gguf, &vector.name);
            write_vector(vector, source, &mut arena[place.clone()]);
            report(range);
        }
        Ok(())
    }

    /// # Errors
    /// If `arena` has not the length of this plan.
    pub fn check(&self, arena: &[u8]) -> Result<(), WrongArena> {
        if arena.len() == self.bytes {
            return Ok(());
        }
        Err(WrongArena {
            expected: self.bytes,
            found: arena.len(),
        })
    }

    /// A matrix in a finished arena.
    pub(crate) fn tiles<'a>(
        &self,
        spec: &Spec,
        id: MatrixId,
        arena: &'a [u8],
    ) -> Result<Tiles<'a>, TileError> {
        let matrix = spec.matrix(id);
        let bytes = &arena[self.matrices[id.0].clone()];
        Tiles::new(matrix.format, matrix.rows, matrix.cols, bytes)
    }

    /// The vectors of a finished arena, by `VectorId`.
    pub(crate) fn vectors(&self, arena: &[u8]) -> Vec<Vec<f32>> {
        let vectors = self.vectors.iter().map(|place| {
            let (elements, _) = arena[place.clone()].as_chunks();
            elements
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect()
        });
        vectors.collect()
    }
}

/// The data of a tensor and where it is in the file.
fn source<'a>(gguf: &Gguf<'a>, name: &str) -> (&'a [u8], Range<usize>) {
    let tensor = gguf.tensor(name);
    tensor.map_or((&[], 0..0), |tensor| {
        (gguf.data(tensor), tensor.data_range())
    })
}

fn write_matrix(matrix: &Matrix, source: &[u8], target: &mut [u8], pool: &Pool) {
    let row_bytes = matrix.format.row_bytes(matrix.cols);
    assert_eq!(source.len(), row_bytes * matrix.rows, "{}", matrix.name);
    let strip = strip_bytes(matrix.format, matrix.cols);
    pool.for_each_chunk(target, strip, &|index, target| {
        let rows = &source[index * STRIP_ROWS * row_bytes..];
        let rows = &rows[..rows.len().min(STRIP_ROWS * row_bytes)];
        repack_strip(matrix.format, matrix.cols, rows, target);
    });
}

fn write_vector(vector: &Vector, source: &[u8], target: &mut [u8]) {
    let mut elements = vec![0.0; vector.len];
    dequantize_row(vector.format, source, &mut elements);
    let (targets, _) = target.as_chunks_mut();
    for (target, element) in targets.iter_mut().zip(&elements) {
        *target = element.to_le_bytes();
    }
}

#[cfg(test)]
mod tests;
