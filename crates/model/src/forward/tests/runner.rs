//! Runs sequences through a model step by step, as the engine does, and keeps what came out.

use std::collections::BTreeMap;

use relight_gguf::Gguf;
use relight_kernels::{Kernels, KvType, PAGE_TOKENS, Pool};

use crate::forward::{Batch, Model, Processor, Row, Scratch};
use crate::spec::Spec;
use crate::weights::WeightsPlan;

pub(super) fn processor(kernels: Kernels, threads: usize) -> Processor {
    Processor {
        kernels,
        pool: Pool::new(threads),
    }
}

/// `count` tokens of a vocabulary from a seed.
pub(super) fn tokens(vocabulary: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from((state >> 33) % u64::from(vocabulary)).unwrap()
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A model on an arena of its own.
pub(super) struct Fixture {
    pub(super) model: Model<Vec<u8>>,
}

impl Fixture {
    pub(super) fn new(file: &[u8]) -> Self {
        Self::with(file, KvType::F16)
    }

    pub(super) fn with(file: &[u8], kv_type: KvType) -> Self {
        let gguf = Gguf::parse(file).unwrap();
        let spec = Spec::from_gguf(&gguf).unwrap();
        let plan = WeightsPlan::new(&spec);
        let mut arena = vec![0; plan.bytes()];
        let pool = Pool::new(2);
        plan.build((&spec, &gguf), &mut arena, &pool, &mut |_| ())
            .unwrap();
        Self {
            model: Model::new(spec, arena, kv_type).unwrap(),
        }
    }
}

/// A sequence on its way, and its logits so far.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) pages: Vec<u32>,
    /// Tokens whose state is in the pages.
    pub(super) done: usize,
    /// By position.
    pub(super) logits: BTreeMap<usize, Vec<f32>>,
}

impl Sequence {
    pub(super) fn new(tokens: &[u32], pages: &[u32]) -> Self {
        Self {
            tokens: tokens.to_vec(),
            pages: pages.to_vec(),
            done: 0,
            logits: BTreeMap::new(),
        }
    }

    pub(super) fn left(&self) -> usize {
        self.tokens.len() - self.done
    }
}

/// The state of one engine.
pub(super) struct Runner<'a> {
    model: &'a Model<Vec<u8>>,
    scratch: Scratch,
    pub(super) kv: Vec<u8>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(model: &'a Model<Vec<u8>>, pages: usize) -> Self {
        Self {
            model,
            scratch: Scratch::new(model),
            // Not a number in any type: state that was never written must never be read.
            kv: vec![0xff; pages * model.kv_layout().page_bytes()],
        }
    }

    /// One step: so many tokens of each of these sequences, which must all have them.
    pub(super) fn step(
        &mut self,
        processor: &Processor,
        sequences: &mut [Sequence],
        parts: &[(usize, usize)],
        wanted: &dyn Fn(usize) -> bool,
    ) {
        let mut rows = Vec::new();
        for (index, (sequence, count)) in parts.iter().enumerate() {
            let sequence = &sequences[*sequence];
            for position in sequence.done..sequence.done + count {
                rows.push(Row {
                    token: sequence.tokens[position],
                    position: u32::try_from(position).unwrap(),
                    sequence: u32::try_from(index).unwrap(),
                    logits: wanted(position),
                });
            }
        }
        let tables = parts
            .iter()
            .map(|(sequence, _)| sequences[*sequence].pages.as_slice());
        let tables: Vec<&[u32]> = tables.collect();
        let batch = Batch {
            rows: &rows,
            sequences: &tables,
        };
        let mut logits = Vec::new();
        let (kv, scratch) = (&mut self.kv, &mut self.scratch);
        self.model
            .forward(processor, &batch, kv, scratch, &mut logits)
            .unwrap();
        let mut logits = logits.chunks_exact(self.model.spec().vocab_size);
        for (sequence, count) in parts {
            let sequence = &mut sequences[*sequence];
            for position in (sequence.done..sequence.done + count).filter(|it| wanted(*it)) {
                sequence
                    .logits
                    .insert(position, logits.next().unwrap().to_vec());
            }
            sequence.done += count;
        }
        assert!(logits.next().is_none(), "no more rows than were wanted");
    }

    /// All logits of one sequence, computed in a single batch.
    pub(super) fn run_alone(&mut self, processor: &Processor, tokens: &[u32]) -> Vec<f32> {
        let logits = self.run_wanted(processor, tokens, &|_| true);
        logits.into_values().flatten().collect()
    }

    /// The wanted logits of one sequence, computed in a single batch.
    pub(super) fn run_wanted(
        &mut self,
        processor: &Processor,
        tokens: &[u32],
        wanted: &dyn Fn(usize) -> bool,
    ) -> BTreeMap<usize, Vec<f32>> {
        let pages = tokens.len().div_ceil(PAGE_TOKENS);
        let pages: Vec<u32> = (0..u32::try_from(pages).unwrap()).collect();
        let mut sequences = [Sequence::new(tokens, &pages)];
        self.step(processor, &mut sequences, &[(0, tokens.len())], wanted);
        let [sequence] = sequences;
        sequence.logits
    }

    /// The state of a sequence's tokens, wherever its pages are.
    pub(super) fn state(&self, sequence: &Sequence) -> Vec<u8> {
        let layout = self.model.kv_layout();
        let bytes = layout.page_bytes();
        let mut state = Vec::new();
        for (index, page) in sequence.pages.iter().enumerate() {
            let tokens = sequence.done.saturating_sub(index * PAGE_TOKENS);
            let start = *page as usize * bytes;
            let mut two = vec![0; 2 * bytes];
            two[bytes..].copy_from_slice(&self.kv[start..start + bytes]);
            layout.copy_tokens(&mut two, 1, 0, tokens.min(PAGE_TOKENS));
            state.extend_from_slice(&two[..bytes]);
        }
        state
    }

    pub(super) fn copy_tokens(&mut self, source: u32, target: u32, tokens: usize) {
        let layout = self.model.kv_layout();
        layout.copy_tokens(&mut self.kv, source, target, tokens);
    }
}
