//! A sequence's logits and state are a pure function of the model and its tokens: bit for
//! bit the same whatever else is computed, in whichever pieces, by whichever tier and
//! however many threads, with or without a prefix that was there, before and after losing
//! everything.

use std::sync::OnceLock;

use proptest::prelude::*;
use relight_engine::scheduler::Drafting;
use relight_gguf::GgmlType;
use relight_kernels::Kernels;
use relight_protocol::{Isa, KvType};
use relight_tiny_model::{Formats, TinyModel};

use crate::tiny_file::TinyFile;
use crate::trace::{Savings, Setup, Trace, Work, run, run_and_count};

/// Prompts of one test, and sequences of the largest batch.
const WORKS: usize = 33;

/// A model with its work and the traces that everything is compared with.
struct Subject {
    file: TinyFile,
    works: Vec<Work>,
    expected: Vec<Trace>,
}

impl Subject {
    fn new(model: &TinyModel, kv_type: KvType) -> Self {
        let file = TinyFile::of(model).with_kv_type(kv_type);
        let works = works();
        let solo = |work: &Work| run(&file, &Setup::reference(), std::slice::from_ref(work));
        let expected = works.iter().flat_map(solo).collect();
        Self {
            file,
            works,
            expected,
        }
    }

    fn assert_same(&self, setup: &Setup, count: usize) -> Savings {
        let (found, savings) = run_and_count(&self.file, setup, &self.works[..count]);
        for (index, (found, expected)) in found.iter().zip(&self.expected).enumerate() {
            assert_eq!(
                found, expected,
                "sequence {index} of {count} with {setup:?}"
            );
        }
        savings
    }
}

/// Every format of matrices in one model.
fn mixed() -> TinyModel {
    TinyModel {
        formats: Formats {
            embedding: GgmlType::Q8_0,
            query_key: GgmlType::Q4_0,
            value: GgmlType::Q5_1,
            attention_output: GgmlType::Q5_0,
            gate_up: GgmlType::Q4_1,
            down: GgmlType::F16,
            output: Some(GgmlType::BF16),
        },
        ..TinyModel::llama()
    }
}

/// The models, each built once for all tests.
fn subjects() -> [&'static Subject; 4] {
    static MIXED: OnceLock<Subject> = OnceLock::new();
    static GEMMA: OnceLock<Subject> = OnceLock::new();
    static K_QUANTS: OnceLock<Subject> = OnceLock::new();
    static BYTES: OnceLock<Subject> = OnceLock::new();
    [
        MIXED.get_or_init(|| Subject::new(&mixed(), KvType::F16)),
        GEMMA.get_or_init(|| Subject::new(&TinyModel::gemma3(), KvType::F16)),
        K_QUANTS.get_or_init(|| Subject::new(&TinyModel::q4_k_m(), KvType::F16)),
        BYTES.get_or_init(|| Subject::new(&TinyModel::gemma3(), KvType::Q8_0)),
    ]
}

/// Tokens that all prompts begin with, as far as they share any.
fn stem(count: usize) -> Vec<u32> {
    (0..200)
        .map(|index| 3 + index * 37 % 601)
        .take(count)
        .collect()
}

/// Prompts that begin alike, end within pages and on their edges, and differ.
fn works() -> Vec<Work> {
    let kinds = (0..).zip([0, 1, 63, 64, 65, 100, 128, 150].into_iter().cycle());
    let work = |(index, shared): (u32, usize)| {
        let own = [1, 3, 9, 28].into_iter().cycle().nth(index as usize / 8);
        let own = (0..own.unwrap()).map(|token| 5 + (token * 53 + index * 7) % 601);
        Work {
            prompt: stem(shared).into_iter().chain(own).collect(),
            generate: 2 + index as usize % 3,
            repeats: false,
        }
    };
    kinds.take(WORKS).map(work).collect()
}

fn tiers() -> Vec<Isa> {
    let available = Kernels::available();
    let tiers = available.iter().map(|kernels| match kernels.isa() {
        relight_kernels::Isa::Scalar => Isa::Scalar,
        relight_kernels::Isa::Avx2 => Isa::Avx2,
        relight_kernels::Isa::AvxVnni => Isa::AvxVnni,
        relight_kernels::Isa::Avx512 => Isa::Avx512,
        relight_kernels::Isa::Neon => Isa::Neon,
        relight_kernels::Isa::NeonDot => Isa::NeonDot,
    });
    tiers.collect()
}

#[test]
fn any_number_of_neighbours() {
    for subject in subjects() {
        for count in [1, 2, 3, 4, 7, 8, 16, 33] {
            subject.assert_same(&Setup::busy(), count);
        }
    }
}

#[test]
fn any_place_in_the_batch() {
    for subject in subjects() {
        let reversed: Vec<_> = subject.works.iter().rev().cloned().collect();
        let found = run(&subject.file, &Setup::busy(), &reversed);
        for (found, expected) in found.iter().rev().zip(&subject.expected) {
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn any_pieces() {
    for subject in subjects() {
        for chunk_rows in [1, 7, 64, 100, 512] {
            let setup = Setup {
                chunk_rows,
                ..Setup::busy()
            };
            subject.assert_same(&setup, WORKS);
        }
    }
}

#[test]
fn any_tier_on_any_number_of_threads() {
    for subject in subjects() {
        for isa in tiers() {
            for threads in [1, 2, 3] {
                let setup = Setup {
                    isa: Some(isa),
                    threads,
                    ..Setup::busy()
                };
                subject.assert_same(&setup, 12);
            }
        }
    }
}

#[test]
fn neighbours_that_come_and_go() {
    for subject in subjects() {
        let setup = Setup {
            arrival_gap: 2,
            chunk_rows: 40,
            batch_rows: 64,
            slots: 5,
            abandons: true,
            ..Setup::busy()
        };
        subject.assert_same(&setup, WORKS);
    }
}

#[test]
fn pages_taken_away_at_every_token() {
    for subject in subjects() {
        for (every, pages) in [(1, 400), (1, 20), (2, 20)] {
            let setup = Setup {
                preempt_every: Some(every),
                pages,
                slots: 8,
                ..Setup::busy()
            };
            subject.assert_same(&setup, 16);
        }
    }
}

#[test]
fn engines_killed_at_every_step() {
    for subject in subjects() {
        for every in 1..4 {
            let setup = Setup {
                kill_every: Some(every),
                ..Setup::busy()
            };
            subject.assert_same(&setup, 8);
        }
    }
}

#[test]
fn engines_that_find_the_pages_of_killed_ones() {
    for subject in subjects() {
        for every in [2, 3] {
            let setup = Setup {
                kill_every: Some(every),
                keeps_pages: true,
                ..Setup::busy()
            };
            let adopted = subject.assert_same(&setup, 8).adopted;
            assert!(adopted > 1, "{adopted} pages");
        }
    }
}

/// The same prompts twice over: the second time, all of their pages are there.
#[test]
fn prefixes_that_were_there() {
    for subject in subjects() {
        for length in [1, 2, 63, 64, 65, 100, 127, 128, 129, 191, 192] {
            let mut prompt = stem(length);
            prompt.extend([7, 8, 9]);
            let work = Work {
                prompt,
                generate: 2,
                repeats: false,
            };
            let cold = run(&subject.file, &Setup::busy(), std::slice::from_ref(&work));
            let warm = Work {
                prompt: stem(200),
                generate: 1,
                repeats: false,
            };
            let one_by_one = Setup {
                slots: 1,
                arrival_gap: 3,
                ..Setup::busy()
            };
            let found = run(&subject.file, &one_by_one, &[warm, work]);
            assert_eq!(found[1], cold[0], "{length} tokens were there");
        }
    }
}

/// Long answers that repeat themselves, with interruptions.
#[test]
fn tokens_that_were_drafted() {
    for subject in subjects() {
        let works = [0, 1, 63, 100].map(|shared| Work {
            prompt: stem(shared).into_iter().chain([5, 9]).collect(),
            generate: 70,
            repeats: true,
        });
        let solo = |work: &Work| {
            run(
                &subject.file,
                &Setup::reference(),
                std::slice::from_ref(work),
            )
        };
        let expected: Vec<_> = works.iter().flat_map(solo).collect();
        let setups = [(1, None, None), (3, Some(7), None), (2, None, Some(5))];
        for (threads, preempt_every, kill_every) in setups {
            let setup = Setup {
                threads,
                preempt_every,
                kill_every,
                keeps_pages: kill_every.is_some(),
                drafting: Drafting::Eager,
                ..Setup::busy()
            };
            let (found, savings) = run_and_count(&subject.file, &setup, &works);
            assert_eq!(found, expected, "{setup:?}");
            let Savings {
                drafted, accepted, ..
            } = savings;
            assert!(accepted > 20 && drafted > accepted, "{savings:?}");
        }
    }
}

prop_compose! {
    fn any_setup()(
        isa in prop::sample::select(tiers()),
        threads in 1..4_u16,
        drafting in prop::sample::select(vec![Drafting::Never, Drafting::Adaptive, Drafting::Eager]),
        slots in 1..9_usize,
        batch_rows in 1..130_usize,
        chunk_rows in prop::sample::select(vec![1, 3, 16, 33, 64, 1000]),
        pages in 6..40_u32,
        arrival_gap in 0..4_usize,
        preempt_every in prop::option::of(1..4_usize),
        kill_every in prop::option::of(6..20_usize),
        keeps_pages in any::<bool>(),
        abandons in any::<bool>(),
    ) -> Setup {
        Setup {
            isa: Some(isa),
            threads,
            slots,
            batch_rows,
            chunk_rows,
            drafting,
            pages,
            arrival_gap,
            preempt_every,
            kill_every,
            keeps_pages,
            abandons,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule(setup in any_setup(), subject in 0..3_usize, count in 1..14_usize) {
        subjects()[subject].assert_same(&setup, count);
    }
}
