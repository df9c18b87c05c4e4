//! The forward pass written to be obvious: every weight dequantized, every value in f32,
//! one token after the other, plain loops. Slow on purpose; what computes a model fast is
//! measured against it.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "shapes were checked when the model was described; a wrong bound panics and is contained; f64 is narrowed on purpose"
)]

use relight_gguf::Gguf;
use relight_kernels::reference::dequantize_row;
use relight_kernels::{RopeKind, f16_to_f32, f32_to_f16};

use crate::spec::{
    Activation, AttentionSpec, FeedForwardSpec, LayerSpec, Linear, MatrixId, Norm, RopeSpec, Spec,
    VectorId,
};

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePrecision {
    F32,
    /// Rounded to f16, as in the pages of the engine.
    F16,
}

/// One sequence and its state.
#[derive(Debug)]
pub struct Reference<'a> {
    spec: &'a Spec,
    gguf: &'a Gguf<'a>,
    precision: CachePrecision,
    /// Per layer: (positions, kv heads, head dim).
    keys: Vec<Vec<f32>>,
    /// Per layer: (positions, kv heads, head dim).
    values: Vec<Vec<f32>>,
    /// Per rotation of the spec: radians per position of each pair.
    frequencies: Vec<Vec<f64>>,
}

impl<'a> Reference<'a> {
    /// An empty sequence. `spec` must describe `gguf`.
    #[must_use]
    pub fn new(spec: &'a Spec, gguf: &'a Gguf<'a>, precision: CachePrecision) -> Self {
        let mut reference = Self {
            spec,
            gguf,
            precision,
            keys: vec![Vec::new(); spec.layers.len()],
            values: vec![Vec::new(); spec.layers.len()],
            frequencies: Vec::new(),
        };
        let frequencies = spec.ropes.iter().map(|rope| reference.frequencies_of(rope));
        reference.frequencies = frequencies.collect();
        reference
    }

    /// Appends `tokens` and returns their logits, (tokens, vocab_size).
    ///
    /// # Panics
    /// If a token is outside the vocabulary.
    pub fn append(&mut self, tokens: &[u32]) -> Vec<f32> {
        let spec = self.spec;
        let mut stream: Vec<Vec<f32>> = tokens.iter().map(|token| self.embed(*token)).collect();
        for (index, layer) in spec.layers.iter().enumerate() {
            self.layer(index, layer, &mut stream);
        }
        for x in &mut stream {
            *x = self.norm(&spec.output_norm, x);
        }
        let mut logits = self.linear(&spec.head, &stream).concat();
        if let Some(cap) = spec.logit_softcap {
            logits
                .iter_mut()
                .for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
        logits
    }

    fn embed(&self, token: u32) -> Vec<f32> {
        let mut x = self.matrix_row(self.spec.embedding, token as usize);
        if let Some(scale) = self.spec.embedding_scale {
            x.iter_mut().for_each(|x| *x *= scale);
        }
        x
    }

    fn layer(&mut self, index: usize, layer: &LayerSpec, stream: &mut [Vec<f32>]) {
        let normed = self.norm_all(&layer.attention_norm, stream);
        let mut added = self.attention(index, &layer.attention, &normed);
        if let Some(norm) = &layer.attention_post_norm {
            added = self.norm_all(norm, &added);
        }
        add(stream, &added);
        let normed = self.norm_all(&layer.feed_forward_norm, stream);
        let mut added = self.feed_forward(&layer.feed_forward, &normed);
        if let Some(norm) = &layer.feed_forward_post_norm {
            added = self.norm_all(norm, &added);
        }
        add(stream, &added);
    }

    fn attention(
        &mut self,
        index: usize,
        spec: &AttentionSpec,
        inputs: &[Vec<f32>],
    ) -> Vec<Vec<f32>> {
        let kv_width = spec.kv_head_count * spec.head_dim;
        let start = self.keys[index].len() / kv_width;
        let mut queries = self.linear(&spec.query, inputs);
        let mut keys = self.linear(&spec.key, inputs);
        let values = self.linear(&spec.value, inputs);
        for (row, (query, key)) in queries.iter_mut().zip(&mut keys).enumerate() {
            let position = start + row;
            self.turn_heads(spec, spec.query_norm.as_ref(), position, query);
            self.turn_heads(spec, spec.key_norm.as_ref(), position, key);
        }
        let (keys, values) = (self.stored(&keys), self.stored(&values));
        self.keys[index].extend(keys);
        self.values[index].extend(values);
        let heads = queries.iter().enumerate().map(|(row, query)| {
            attend(
                spec,
                start + row,
                query,
                &self.keys[index],
                &self.values[index],
            )
        });
        let heads: Vec<Vec<f32>> = heads.collect();
        self.linear(&spec.output, &heads)
    }

    /// Normalises and turns every head of `heads` (heads, head dim).
    fn turn_heads(
        &self,
        spec: &AttentionSpec,
        norm: Option<&Norm>,
        position: usize,
        heads: &mut [f32],
    ) {
        let rope = &self.spec.ropes[spec.rope];
        for head in heads.chunks_exact_mut(spec.head_dim) {
            if let Some(norm) = norm {
                head.copy_from_slice(&self.norm(norm, head));
            }
            for (pair, frequency) in self.frequencies[spec.rope].iter().enumerate() {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                let (sine, cosine) = (sine as f32, cosine as f32);
                let (first, second) = match rope.kind {
                    RopeKind::Interleaved => (2 * pair, 2 * pair + 1),
                    RopeKind::Neox => (pair, pair + rope.dims / 2),
                };
                let (x, y) = (head[first], head[second]);
                head[first] = x * cosine - y * sine;
                head[second] = x * sine + y * cosine;
            }
        }
    }

    fn feed_forward(&self, spec: &FeedForwardSpec, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mut gates = self.linear(&spec.gate, inputs);
        let ups = self.linear(&spec.up, inputs);
        for (gate, up) in gates.iter_mut().flatten().zip(ups.iter().flatten()) {
            *gate = activate(spec.activation, *gate) * up;
        }
        self.linear(&spec.down, &gates)
    }

    fn stored(&self, rows: &[Vec<f32>]) -> Vec<f32> {
        let elements = rows.iter().flatten().copied();
        match self.precision {
            CachePrecision::F32 => elements.collect(),
            CachePrecision::F16 => elements.map(|x| f16_to_f32(f32_to_f16(x))).collect(),
        }
    }

    fn norm_all(&self, norm: &Norm, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        rows.iter().map(|row| self.norm(norm, row)).collect()
    }

    fn norm(&self, norm: &Norm, x: &[f32]) -> Vec<f32> {
        let weight = self.vector(norm.weight);
        let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
        let factor = 1.0 / (mean + norm.epsilon).sqrt();
        x.iter()
            .zip(&weight)
            .map(|(x, weight)| x * factor * weight)
            .collect()
    }

    /// One output row per input row.
    fn linear(&self, linear: &Linear, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let rows = self.spec.matrix(linear.matrix).rows;
        let mut outputs = vec![vec![0.0; rows]; inputs.len()];
        for row in 0..rows {
            let weights = self.matrix_row(linear.matrix, row);
            for (input, output) in inputs.iter().zip(&mut outputs) {
                output[row] = dot(&weights, input);
            }
        }
        if let Some(bias) = linear.bias {
            let bias = self.vector(bias);
            for output in &mut outputs {
                output
                    .iter_mut()
                    .zip(&bias)
                    .for_each(|(output, bias)| *output += bias);
            }
        }
        outputs
    }

    fn matrix_row(&self, id: MatrixId, row: usize) -> Vec<f32> {
        let matrix = self.spec.matrix(id);
        assert!(row < matrix.rows, "row {row} of {}", matrix.name);
        let bytes = matrix.format.row_bytes(matrix.cols);
        let mut weights = vec![0.0; matrix.cols];
        let data = &self.data(&matrix.name)[row * bytes..][..bytes];
        dequantize_row(matrix.format, data, &mut weights);
        weights
    }

    fn vector(&self, id: VectorId) -> Vec<f32> {
        let vector = self.spec.vector(id);
        let mut elements = vec![0.0; vector.len];
        dequantize_row(vector.format, self.data(&vector.name), &mut elements);
        elements
    }

    fn data(&self, name: &str) -> &'a [u8] {
        self.gguf
            .tensor(name)
            .map_or(&[], |tensor| self.gguf.data(tensor))
    }

    fn frequencies_of(&self, rope: &RopeSpec) -> Vec<f64> {
        let pairs = rope.dims / 2;
        let scaling = rope.scaling_divisors().unwrap_or_else(|| vec![1.0; pairs]);
        let own = rope
            .divisors
            .map_or_else(|| vec![1.0; pairs], |id| self.vector(id));
        let frequency = |pair: usize| {
            let exponent = -2.0 * pair as f64 / rope.dims as f64;
            let divisor = f64::from(scaling[pair]) * f64::from(own[pair]);
            f64::from(rope.base).powf(exponent) / divisor
        };
        (0..pairs).map(frequency).collect()
    }
}

/// What every head of the query at `position` sees: (heads, head dim).
fn attend(
    spec: &AttentionSpec,
    position: usize,
    query: &[f32],
    keys: &[f32],
    values: &[f32],
) -> Vec<f32> {
    let (dim, kv_width) = (spec.head_dim, spec.kv_head_count * spec.head_dim);
    let window = spec.window.map_or(usize::MAX, |window| window as usize);
    let first = (position + 1).saturating_sub(window);
    let mut out = vec![0.0; query.len()];
    let group = spec.head_count / spec.kv_head_count;
    for (head, (query, out)) in query
        .chunks_exact(dim)
        .zip(out.chunks_exact_mut(dim))
        .enumerate()
    {
        let offset = head / group * dim;
        let row =
            |position: usize| position * kv_width + offset..position * kv_width + offset + dim;
        let scores = (first..=position).map(|seen| {
            let score = dot(query, &keys[row(seen)]) * spec.scale;
            spec.softcap.map_or(score, |cap| cap * (score / cap).tanh())
        });
        let scores: Vec<f32> = scores.collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
        let sum: f32 = weights.iter().sum();
        for (seen, weight) in (first..=position).zip(&weights) {
            for (out, value) in out.iter_mut().zip(&values[row(seen)]) {
                *out += weight / sum * value;
            }
        }
    }
    out
}

fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

fn add(stream: &mut [Vec<f32>], added: &[Vec<f32>]) {
    for (x, added) in stream.iter_mut().flatten().zip(added.iter().flatten()) {
        *x += added;
    }
}

/// Sixteen partial sums, so that the compiler may use vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_blocks, a_rest) = a.as_chunks::<16>();
    let (b_blocks, b_rest) = b.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests;
