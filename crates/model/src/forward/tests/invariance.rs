//! A sequence's logits and state have the same bits however they came about: in any batch
//! and chunk, at any place of the batch and of the arena, on any number of threads and any
//! instruction set, after a prefix hit and after being computed again.

use std::fmt::Debug;

use proptest::prelude::*;
use relight_gguf::GgmlType;
use relight_kernels::{Kernels, KvType};
use relight_tiny_model::{FORMATS, Formats, TinyModel};

use super::runner::{self, Fixture, Runner, Sequence};
use crate::forward::Processor;
use crate::recorded::RealModel;

/// Longer than two pages and two windows.
const TOKENS: usize = 150;
const PAGES: usize = TOKENS.div_ceil(64);

/// Every tier with one thread, and the fastest with two and three.
fn processors() -> Vec<Processor> {
    let tiers = Kernels::available().into_iter();
    let mut processors: Vec<_> = tiers.map(|kernels| runner::processor(kernels, 1)).collect();
    processors.extend([2, 3].map(|threads| runner::processor(Kernels::detect(), threads)));
    processors
}

fn models() -> [TinyModel; 4] {
    let floats = TinyModel {
        formats: Formats {
            embedding: GgmlType::BF16,
            down: GgmlType::F32,
            ..Formats::uniform(GgmlType::F16)
        },
        rope_factors: true,
        ..TinyModel::llama()
    };
    [
        floats,
        TinyModel::q4_k_m(),
        TinyModel::qwen2(),
        TinyModel::gemma3(),
    ]
}

/// Every model with every type of keys and values.
fn fixtures() -> impl Iterator<Item = (TinyModel, KvType, Fixture)> {
    models().into_iter().flat_map(|model| {
        KvType::ALL.map(|kv_type| {
            let fixture = Fixture::with(&model.build(), kv_type);
            (model.clone(), kv_type, fixture)
        })
    })
}

/// What must never change.
#[derive(Clone, PartialEq)]
struct Outcome {
    logits: Vec<u32>,
    state: Vec<u8>,
}

impl Outcome {
    fn of(runner: &Runner<'_>, sequence: &Sequence) -> Self {
        assert_eq!(sequence.left(), 0);
        let logits = sequence.logits.values().flatten();
        Self {
            logits: logits.map(|logit| logit.to_bits()).collect(),
            state: runner.state(sequence),
        }
    }

    /// As in [`PartialEq`], with a message of bearable length.
    fn check(&self, expected: &Self, what: &dyn Debug) {
        let logit = self
            .logits
            .iter()
            .zip(&expected.logits)
            .position(|(a, b)| a != b);
        let byte = self
            .state
            .iter()
            .zip(&expected.state)
            .position(|(a, b)| a != b);
        assert_eq!(self.logits.len(), expected.logits.len(), "{what:?}");
        assert_eq!(
            (logit, byte),
            (None, None),
            "first different logit and byte: {what:?}"
        );
    }
}

/// Sequences of different lengths in pages that are neither consecutive nor ascending.
fn sequences(vocabulary: u32, count: usize) -> Vec<Sequence> {
    let pages = u32::try_from(count * PAGES).unwrap();
    assert_ne!(pages % 7, 0, "7 steps through all pages");
    let free: Vec<u32> = (0..pages).map(|index| (index * 7 + 3) % pages).collect();
    let lengths = (0..count).map(|index| TOKENS - 17 * (index % 5));
    let tokens = lengths
        .zip(1..)
        .map(|(length, seed)| runner::tokens(vocabulary, length, seed));
    let sequences = tokens.zip(free.chunks_exact(PAGES));
    sequences
        .map(|(tokens, pages)| Sequence::new(&tokens, pages))
        .collect()
}

/// Each sequence alone, in one batch, on one thread.
fn expected(fixture: &Fixture, sequences: &[Sequence]) -> Vec<Outcome> {
    let processor = runner::processor(Kernels::detect(), 1);
    let outcomes = sequences.iter().map(|sequence| {
        let pages: Vec<u32> = (0..u32::try_from(PAGES).unwrap()).collect();
        let mut alone = [Sequence::new(&sequence.tokens, &pages)];
        let mut runner = Runner::new(&fixture.model, PAGES);
        let all = [(0, sequence.tokens.len())];
        runner.step(&processor, &mut alone, &all, &|_| true);
        Outcome::of(&runner, &alone[0])
    });
    outcomes.collect()
}

#[test]
fn threads_and_tiers_change_no_bit_in_any_format() {
    let formats = FORMATS.into_iter();
    for (format, kv_type) in formats.flat_map(|format| KvType::ALL.map(|it| (format, it))) {
        let formats = Formats::uniform(format);
        let model = TinyModel {
            formats,
            hidden: 256,
            heads: 8,
            ..TinyModel::llama()
        };
        let fixture = Fixture::with(&model.build(), kv_type);
        let mut sequences = sequences(model.vocabulary, 1);
        let expected = expected(&fixture, &sequences);
        for processor in processors() {
            let mut runner = Runner::new(&fixture.model, PAGES);
            let sequence = &mut sequences[..1];
            sequence[0].done = 0;
            runner.step(&processor, sequence, &[(0, TOKENS)], &|_| true);
            let outcome = Outcome::of(&runner, &sequence[0]);
            outcome.check(&expected[0], &(format, kv_type, &processor));
        }
    }
}

/// Real models have the sizes of heads and rows that tiny ones do not.
#[test]
fn threads_tiers_and_chunks_change_no_bit_in_real_models() {
    for (name, kv_type) in [
        ("smollm2", KvType::F16),
        ("smollm2", KvType::Bf16),
        ("smollm2", KvType::Q8_0),
        ("gemma3", KvType::F16),
        ("gemma3", KvType::Q8_0),
    ] {
        let recorded = RealModel::read(name);
        let fixture = Fixture::with(&recorded.bytes, kv_type);
        let new = Sequence::new(&recorded.prompts[0].tokens[..12], &[0]);
        let run = |processor: &Processor, chunk: usize| {
            let mut runner = Runner::new(&fixture.model, 1);
            let mut sequences = [new.clone()];
            while sequences[0].left() > 0 {
                let count = chunk.min(sequences[0].left());
                runner.step(processor, &mut sequences, &[(0, count)], &|it| it == 11);
            }
            Outcome::of(&runner, &sequences[0])
        };
        let expected = run(&runner::processor(Kernels::detect(), 1), 12);
        for kernels in Kernels::available() {
            let outcome = run(&runner::processor(kernels, 3), 5);
            outcome.check(&expected, &(name, kv_type, kernels));
        }
    }
}

#[test]
fn chunks_change_no_bit() {
    for (model, kv_type, fixture) in fixtures() {
        let sequences = sequences(model.vocabulary, 1);
        let expected = expected(&fixture, &sequences);
        for chunk in [1, 7, 64, 100, 512] {
            let processor = runner::processor(Kernels::detect(), 2);
            let mut runner = Runner::new(&fixture.model, PAGES);
            let mut sequences = sequences.clone();
            while sequences[0].left() > 0 {
                let count = chunk.min(sequences[0].left());
                runner.step(&processor, &mut sequences, &[(0, count)], &|_| true);
            }
            Outcome::of(&runner, &sequences[0]).check(&expected[0], &(&model, kv_type, chunk));
        }
    }
}

#[test]
fn neighbours_and_place_in_the_batch_change_no_bit() {
    for (model, kv_type, fixture) in fixtures() {
        let all = sequences(model.vocabulary, 33);
        let expected = expected(&fixture, &all);
        let processor = runner::processor(Kernels::detect(), 2);
        for count in [1, 2, 3, 4, 7, 8, 16, 33] {
            let mut runner = Runner::new(&fixture.model, 33 * PAGES);
            let mut sequences = all[..count].to_vec();
            // All but the last tokens in large chunks, then one each, as in decoding; the
            // order of the batch turns with every step.
            let mut turn = 0;
            while sequences.iter().any(|sequence| sequence.left() > 0) {
                let parts = (0..count).map(|index| (index + turn) % count);
                let parts = parts.map(|index| (index, next_part(sequences[index].left())));
                let parts: Vec<_> = parts.filter(|(_, count)| *count > 0).collect();
                runner.step(&processor, &mut sequences, &parts, &|_| true);
                turn += 1;
            }
            for (sequence, expected) in sequences.iter().zip(&expected) {
                Outcome::of(&runner, sequence).check(expected, &(&model, kv_type, count));
            }
        }
    }
}

fn next_part(left: usize) -> usize {
    if left > 20 { left - 20 } else { left.min(1) }
}

#[test]
fn rows_without_logits_change_no_bit() {
    let model = TinyModel::gemma3();
    let fixture = Fixture::new(&model.build());
    let mut sequences = sequences(model.vocabulary, 2);
    let expected = expected(&fixture, &sequences);
    let processor = runner::processor(Kernels::detect(), 2);
    let mut runner = Runner::new(&fixture.model, 2 * PAGES);
    let cols = fixture.model.spec().vocab_size;
    let wanted = |position: usize| position.is_multiple_of(3) && position >= 60;
    // The first step wants none at all.
    for parts in [[(0, 50), (1, 20)], [(1, 113), (0, 100)]] {
        runner.step(&processor, &mut sequences, &parts, &wanted);
    }
    for (sequence, expected) in sequences.iter().zip(&expected) {
        assert!(runner.state(sequence) == expected.state);
        assert!(!sequence.logits.is_empty());
        for (position, logits) in &sequence.logits {
            let bits = logits.iter().map(|logit| logit.to_bits());
            let expected = &expected.logits[position * cols..][..cols];
            assert!(bits.eq(expected.iter().copied()), "position {position}");
        }
    }
}

#[test]
fn a_prefix_hit_changes_no_bit_even_amid_a_page() {
    for (model, kv_type, fixture) in fixtures() {
        let processor = runner::processor(Kernels::detect(), 2);
        for prefix in [1, 10, 63, 64, 65, 100, 128, 149] {
            let mut pair = sequences(model.vocabulary, 2);
            pair[1].tokens = runner::tokens(model.vocabulary, TOKENS, 9);
            let shared = pair[0].tokens[..prefix.min(pair[0].tokens.len())].to_vec();
            pair[1].tokens[..prefix].copy_from_slice(&shared);
            let expected = expected(&fixture, &pair);
            let mut runner = Runner::new(&fixture.model, 2 * PAGES);
            runner.step(&processor, &mut pair, &[(0, TOKENS)], &|_| true);
            // Whole pages are shared, the rest of the prefix is copied.
            let whole = prefix / 64;
            for page in 0..whole {
                pair[1].pages[page] = pair[0].pages[page];
            }
            if whole < PAGES {
                runner.copy_tokens(pair[0].pages[whole], pair[1].pages[whole], prefix % 64);
            }
            pair[1].done = prefix;
            let left = pair[1].left();
            runner.step(&processor, &mut pair, &[(1, left)], &|_| true);
            let cols = fixture.model.spec().vocab_size;
            let mut outcome = Outcome::of(&runner, &pair[1]);
            let before = expected[1].logits[..prefix * cols].iter().copied();
            outcome.logits = before.chain(outcome.logits).collect();
            outcome.check(&expected[1], &(&model, kv_type, prefix));
        }
    }
}

#[test]
fn preemption_at_any_token_changes_no_bit() {
    KvType::ALL.into_iter().for_each(preempt_at_any_token);
}

fn preempt_at_any_token(kv_type: KvType) {
    let model = TinyModel {
        layers: 1,
        ..TinyModel::llama()
    };
    let fixture = Fixture::with(&model.build(), kv_type);
    let mut sequences = sequences(model.vocabulary, 2);
    let expected = expected(&fixture, &sequences);
    let processor = runner::processor(Kernels::detect(), 1);
    let mut runner = Runner::new(&fixture.model, 2 * PAGES);
    for preempted in 1..TOKENS {
        sequences[0].done = 0;
        runner.step(&processor, &mut sequences, &[(0, preempted)], &|_| true);
        // Its pages go to another sequence, which leaves its own state behind.
        sequences[1].pages = sequences[0].pages.iter().rev().copied().collect();
        sequences[1].done = 0;
        runner.step(&processor, &mut sequences, &[(1, 70)], &|_| false);
        sequences[0].pages.rotate_left(1);
        sequences[0].done = 0;
        runner.step(&processor, &mut sequences, &[(0, preempted)], &|_| true);
        runner.step(
            &processor,
            &mut sequences,
            &[(0, TOKENS - preempted)],
            &|_| true,
        );
        Outcome::of(&runner, &sequences[0]).check(&expected[0], &(kv_type, preempted));
    }
}

/// One step of a random schedule: processor, and how many tokens of which sequences.
type Step = (usize, Vec<(usize, usize)>);

const SCHEDULED: usize = 5;

fn schedule() -> impl Strategy<Value = Vec<Step>> {
    let part = (0..SCHEDULED, prop_oneof![Just(1usize), 1..80usize]);
    let step = (0..64usize, prop::collection::vec(part, 1..=SCHEDULED));
    prop::collection::vec(step, 1..12)
}

#[test]
fn no_schedule_changes_a_bit() {
    let fixtures: Vec<_> = fixtures()
        .map(|(model, kv_type, fixture)| {
            let sequences = sequences(model.vocabulary, SCHEDULED);
            let expected = expected(&fixture, &sequences);
            (fixture, sequences, expected, (model, kv_type))
        })
        .collect();
    let processors = processors();
    let mut config = ProptestConfig::with_cases(48);
    config.failure_persistence = None;
    proptest!(config, |(steps in schedule(), chosen in 0..12usize)| {
        let (fixture, sequences, expected, kept) = &fixtures[chosen];
        let mut sequences = sequences.clone();
        let mut runner = Runner::new(&fixture.model, SCHEDULED * PAGES);
        let rest = (0usize, (0..SCHEDULED).map(|index| (index, TOKENS)).collect());
        for (processor, parts) in steps.iter().chain([&rest]) {
            let processor = &processors[processor % processors.len()];
            let mut fitting: Vec<(usize, usize)> = Vec::new();
            for (sequence, count) in parts {
                let count = (*count).min(sequences[*sequence].left());
                let new = fitting.iter().all(|(known, _)| known != sequence);
                if count > 0 && new {
                    fitting.push((*sequence, count));
                }
            }
            runner.step(processor, &mut sequences, &fitting, &|_| true);
        }
        for (sequence, expected) in sequences.iter().zip(expected) {
            Outcome::of(&runner, sequence).check(expected, &(kept, &steps));
        }
    });
}
