//! The forward pass: a batch of tokens in, their key/value state into the pages, logits out.
//!
//! ```text
//! x = embedding[token] * scale
//! for each layer:
//!     q, k, v = query, key, value (norm(x))          norms and rotation per head
//!     pages <- k, v
//!     x += post(output(attention(q, pages)))
//!     x += post(down(activation(gate(norm(x))) * up(norm(x))))
//! logits = head(norm(x))                             rows that want them
//! ```
//!
//! Every operation treats each row alone and in the same order, so the bits of a sequence's
//! state and logits depend on its tokens only: not on the batch, the chunk, the threads or
//! the instruction set.

#![expect(
    clippy::indexing_slicing,
    reason = "shapes were checked when the model was described and the batch when it came in; a wrong bound panics and is contained"
)]

mod batch;
mod costs;
mod scratch;

use relight_kernels::{
    Activations, AttentionShape, Kernels, KvLayout, KvType, Pool, Product, RopeTable, TileError,
    Tiles,
};

use crate::spec::{Activation, AttentionSpec, LayerSpec, Linear, MatrixId, Norm, RopeSpec, Spec};
use crate::weights::{WeightsPlan, WrongArena};

pub use batch::{Batch, ForwardError, Row};
pub use costs::{Clock, Costs, Phase};
pub use scratch::Scratch;

/// What computes: an instruction set and a team of threads.
#[derive(Debug)]
pub struct Processor {
    pub kernels: Kernels,
    pub pool: Pool,
}

/// A model whose weights lie in an arena `A`.
#[derive(Debug)]
pub struct Model<A> {
    spec: Spec,
    plan: WeightsPlan,
    layout: KvLayout,
    /// By `VectorId`.
    vectors: Vec<Vec<f32>>,
    arena: A,
}

impl<A: AsRef<[u8]>> Model<A> {
    /// The model that `spec` describes, on the arena that its plan has built, with keys and
    /// values kept as `kv_type`.
    ///
    /// # Errors
    /// `WrongArena` if the arena's length is not that of the plan.
    pub fn new(spec: Spec, arena: A, kv_type: KvType) -> Result<Self, WrongArena> {
        let plan = WeightsPlan::new(&spec);
        plan.check(arena.as_ref())?;
        let layers = spec.layers.iter().map(|layer| &layer.attention);
        let shapes = layers.map(|attention| (attention.kv_head_count, attention.head_dim));
        let layout = KvLayout::new(kv_type, &shapes.collect::<Vec<_>>());
        let vectors = plan.vectors(arena.as_ref());
        Ok(Self {
            spec,
            plan,
            layout,
            vectors,
            arena,
        })
    }

    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How a page of key/value state is divided.
    #[must_use]
    pub fn kv_layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Computes `batch`, writes its state into the pages of `kv` and replaces `logits` by
    /// one row of `vocab_size` values for each row that wants them, in order.
    ///
    /// `kv` holds pages of `kv_layout().page_bytes()` bytes. What the rows' sequences
    /// have before the rows' positions must be there already.
    ///
    /// # Errors
    /// See [`ForwardError`]; then nothing was written.
    pub fn forward(
        &self,
        processor: &Processor,
        batch: &Batch<'_>,
        kv: &mut [u8],
        scratch: &mut Scratch,
        logits: &mut Vec<f32>,
    ) -> Result<(), ForwardError> {
        batch.check(self.spec.vocab_size, kv.len() / self.layout.page_bytes())?;
        scratch.laps.begin();
        scratch
            .laps
            .costs
            .note_reads(&self.spec, &self.layout, batch);
        scratch.start(batch, &self.spec);
        let pass = Pass {
            model: self,
            processor,
            tables: batch.sequences,
        };
        pass.embed(batch, &mut scratch.stream)?;
        scratch.laps.end(Phase::Embed);
        for (index, layer) in self.spec.layers.iter().enumerate() {
            let last = index + 1 == self.spec.layers.len();
            pass.attention(index, layer, kv, scratch, last)?;
            scratch.laps.end(Phase::Output);
            pass.feed_forward(layer, scratch)?;
            scratch.laps.end(Phase::FeedForward);
        }
        pass.head(scratch, logits)?;
        scratch.laps.end(Phase::Head);
        Ok(())
    }

    /// The rotation table of `rope`, without angles yet.
    fn rope_table(&self, rope: &RopeSpec) -> RopeTable {
        let own = rope.divisors.map(|id| &self.vectors[id.0]);
        let divisors = match (rope.scaling_divisors(), own) {
            (Some(mut divisors), Some(own)) => {
                divisors
                    .iter_mut()
                    .zip(own)
                    .for_each(|(divisor, own)| *divisor *= own);
                Some(divisors)
            }
            (Some(divisors), None) => Some(divisors),
            (None, own) => own.cloned(),
        };
        RopeTable::new(rope.dims, rope.base.into(), 1.0, divisors.as_deref())
    }
}

/// One batch on its way through the model.
struct Pass<'a, A> {
    model: &'a Model<A>,
    processor: &'a Processor,
    /// Page table of each sequence.
    tables: &'a [&'a [u32]],
}

impl<A: AsRef<[u8]>> Pass<'_, A> {
    fn embed(&self, batch: &Batch<'_>, stream: &mut [f32]) -> Result<(), TileError> {
        let spec = &self.model.spec;
        let kernels = &self.processor.kernels;
        let embedding = self.tiles(spec.embedding)?;
        for (row, x) in batch.rows.iter().zip(stream.chunks_exact_mut(spec.width)) {
            kernels.gather_row(&embedding, row.token as usize, x);
        }
        if let Some(scale) = spec.embedding_scale {
            kernels.scale(stream, scale);
        }
        Ok(())
    }

    /// `stream += post(output(attention(norm(stream))))`. After the last layer's keys and
    /// values are written, only rows that want logits go on.
    fn attention(
        &self,
        index: usize,
        layer: &LayerSpec,
        kv: &mut [u8],
        scratch: &mut Scratch,
        last: bool,
    ) -> Result<(), TileError> {
        let (Processor { kernels, pool }, spec) = (self.processor, &layer.attention);
        let layout = &self.model.layout;
        self.norm_rows(&layer.attention_norm, &scratch.stream, &mut scratch.input);
        self.quantize_for(&mut scratch.input, &[spec.query, spec.key, spec.value]);
        self.heads(spec, scratch)?;
        scratch.laps.end(Phase::Project);
        let state = (scratch.keys.as_slice(), scratch.values.as_slice());
        kernels.kv_write(pool, (kv, layout, index), &scratch.places, state);
        if last {
            scratch.keep_rows_with_logits(spec.head_count * spec.head_dim);
        }
        let rows = scratch.attention_rows.len();
        scratch.heads.resize(rows, spec.head_count * spec.head_dim);
        let shape = AttentionShape {
            heads: spec.head_count,
            scale: spec.scale,
            window: spec.window,
            softcap: spec.softcap,
        };
        kernels.attention(
            pool,
            (kv, layout, index),
            &shape,
            (&scratch.queries, &scratch.attention_rows, self.tables),
            scratch.heads.values_mut(),
        );
        scratch.laps.end(Phase::Attention);
        self.quantize_for(&mut scratch.heads, &[spec.output]);
        let linear = (&spec.output, layer.attention_post_norm.as_ref());
        let target = (scratch.stream.as_mut_slice(), &mut scratch.output);
        self.add_linear(linear, &scratch.heads, target)
    }

    /// Queries, keys and values of the rows, normalised and turned.
    fn heads(&self, spec: &AttentionSpec, scratch: &mut Scratch) -> Result<(), TileError> {
        let Processor { kernels, pool } = self.processor;
        let input = &scratch.input;
        let products = [
            self.product(&spec.query, input, &mut scratch.queries)?,
            self.product(&spec.key, input, &mut scratch.keys)?,
            self.product(&spec.value, input, &mut scratch.values)?,
        ];
        kernels.matmul(pool, input, products);
        let kind = self.model.spec.ropes[spec.rope].kind;
        let table = &scratch.ropes[spec.rope];
        for (heads, norm) in [
            (&mut scratch.queries, &spec.query_norm),
            (&mut scratch.keys, &spec.key_norm),
        ] {
            if let Some(norm) = norm {
                let weight = &self.model.vectors[norm.weight.0];
                kernels.rms_norm_in_place(pool, heads, weight, norm.epsilon);
            }
            kernels.rope(pool, heads, spec.head_dim, table, kind);
        }
        Ok(())
    }

    /// `stream += post(down(activation(gate(norm(stream))) * up(norm(stream))))`
    fn feed_forward(&self, layer: &LayerSpec, scratch: &mut Scratch) -> Result<(), TileError> {
        let (Processor { kernels, pool }, spec) = (self.processor, &layer.feed_forward);
        self.norm_rows(
            &layer.feed_forward_norm,
            &scratch.stream,
            &mut scratch.input,
        );
        self.quantize_for(&mut scratch.input, &[spec.gate, spec.up]);
        let input = &scratch.input;
        let inner_width = self.model.spec.matrix(spec.gate.matrix).rows;
        scratch.inner.resize(input.rows(), inner_width);
        let products = [
            self.product_into(&spec.gate, scratch.inner.values_mut())?,
            self.product(&spec.up, input, &mut scratch.up)?,
        ];
        kernels.matmul(pool, input, products);
        let gate = scratch.inner.values_mut();
        match spec.activation {
            Activation::Silu => kernels.silu_mul(pool, gate, &scratch.up),
            Activation::Gelu => kernels.gelu_mul(pool, gate, &scratch.up),
        }
        self.quantize_for(&mut scratch.inner, &[spec.down]);
        let linear = (&spec.down, layer.feed_forward_post_norm.as_ref());
        let target = (scratch.stream.as_mut_slice(), &mut scratch.output);
        self.add_linear(linear, &scratch.inner, target)
    }

    /// Logits of the rows that are left.
    fn head(&self, scratch: &mut Scratch, logits: &mut Vec<f32>) -> Result<(), TileError> {
        let (Processor { kernels, pool }, spec) = (self.processor, &self.model.spec);
        self.norm_rows(&spec.output_norm, &scratch.stream, &mut scratch.input);
        self.quantize_for(&mut scratch.input, &[spec.head]);
        let input = &scratch.input;
        kernels.matmul(pool, input, [self.product(&spec.head, input, logits)?]);
        if let Some(cap) = spec.logit_softcap {
            kernels.softcap(pool, logits, cap);
        }
        Ok(())
    }

    fn norm_rows(&self, norm: &Norm, rows: &[f32], out: &mut Activations) {
        let Processor { kernels, pool } = self.processor;
        let weight = &self.model.vectors[norm.weight.0];
        out.resize(rows.len() / weight.len(), weight.len());
        kernels.rms_norm(pool, rows, weight, norm.epsilon, out.values_mut());
    }

    /// Quantizes `activations` if one of the `linears` that take them needs it.
    fn quantize_for(&self, activations: &mut Activations, linears: &[Linear]) {
        let Processor { kernels, pool } = self.processor;
        let spec = &self.model.spec;
        let mut formats = linears
            .iter()
            .map(|linear| spec.matrix(linear.matrix).format);
        if formats.any(|format| format.is_quantized()) {
            kernels.quantize(pool, activations);
        }
    }

    /// `stream += post(linear(input))`
    fn add_linear(
        &self,
        (linear, post): (&Linear, Option<&Norm>),
        input: &Activations,
        (stream, output): (&mut [f32], &mut Vec<f32>),
    ) -> Result<(), TileError> {
        let Processor { kernels, pool } = self.processor;
        let Some(norm) = post else {
            let mut product = self.product_into(linear, stream)?;
            product.accumulate = true;
            kernels.matmul(pool, input, [product]);
            return Ok(());
        };
        kernels.matmul(pool, input, [self.product(linear, input, output)?]);
        let weight = &self.model.vectors[norm.weight.0];
        kernels.rms_norm_in_place(pool, output, weight, norm.epsilon);
        kernels.add(pool, stream, output);
        Ok(())
    }

    /// A product that replaces `out` by one output row per row of `input`.
    fn product<'a>(
        &'a self,
        linear: &Linear,
        input: &Activations,
        out: &'a mut Vec<f32>,
    ) -> Result<Product<'a>, TileError> {
        let cols = self.model.spec.matrix(linear.matrix).rows;
        out.resize(input.rows() * cols, 0.0);
        self.product_into(linear, out)
    }

    fn product_into<'a>(
        &'a self,
        linear: &Linear,
        out: &'a mut [f32],
    ) -> Result<Product<'a>, TileError> {
        let bias = linear.bias.map(|bias| &self.model.vectors[bias.0]);
        Ok(Product {
            bias: bias.map(Vec::as_slice),
            ..Product::new(self.tiles(linear.matrix)?, out)
        })
    }

    fn tiles(&self, id: MatrixId) -> Result<Tiles<'_>, TileError> {
        let model = self.model;
        model.plan.tiles(&model.spec, id, model.arena.as_ref())
    }
}

#[cfg(test)]
mod tests;
