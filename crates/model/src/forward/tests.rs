//! The forward pass against the recorded logits of others and against the reference.

mod invariance;
mod runner;

use relight_gguf::{GgmlType, Gguf};
use relight_kernels::Kernels;
use relight_tiny_model::{FORMATS, Formats, TinyModel as RandomModel};

use super::{Batch, ForwardError, Row};
use crate::recorded::{self, RealModel, TinyModel};
use crate::reference::{CachePrecision, Reference};
use crate::spec::Spec;
use runner::{Fixture, Runner};

#[test]
fn tiny_models_have_the_logits_of_transformers_on_every_tier() {
    for name in recorded::TINY {
        let recorded = TinyModel::read(name);
        let fixture = Fixture::new(&recorded.bytes);
        for kernels in Kernels::available() {
            let processor = runner::processor(kernels, 2);
            for sequence in &recorded.sequences {
                let mut runner = Runner::new(&fixture.model, 4);
                let logits = runner.run_alone(&processor, &sequence.tokens);
                sequence.check(name, &logits);
            }
        }
    }
}

/// Random models that do not amplify noise. Gemma's norms do, so that a random one is chaotic;
/// the recorded models are there for it.
fn calm_models(format: GgmlType) -> [RandomModel; 2] {
    [RandomModel::llama(), RandomModel::qwen2()].map(|model| RandomModel {
        formats: Formats::uniform(format),
        hidden: 256,
        heads: 8,
        ..model
    })
}

#[test]
fn float_weights_give_the_logits_of_the_reference() {
    for format in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
        for random in calm_models(format) {
            let differences = differences(&random);
            // Sums in another order, and keys that round the other way in f16.
            let (furthest, divergence) = (differences.furthest, differences.divergence);
            assert!(furthest < 0.01, "{random:?}: a logit is {furthest} off");
            assert!(divergence < 1e-6, "{random:?}: KL {divergence}");
        }
    }
}

/// Of random models, whose logits spread more than those of real ones: measured are 0.003 to
/// 0.011. A kernel that is wrong somewhere gives whole nats.
const ACTIVATION_NOISE: f64 = 0.03;

#[test]
fn quantized_weights_diverge_from_the_reference_by_the_noise_of_activations() {
    for format in FORMATS {
        for random in calm_models(format) {
            let divergence = differences(&random).divergence;
            assert!(divergence < ACTIVATION_NOISE, "{random:?}: KL {divergence}");
        }
    }
}

struct Differences {
    /// Of two logits.
    furthest: f32,
    /// Mean Kullback-Leibler divergence from the reference's distribution, in nats.
    divergence: f64,
}

/// Of the forward pass from the reference, on 80 random tokens.
fn differences(random: &RandomModel) -> Differences {
    let bytes = random.build();
    let fixture = Fixture::new(&bytes);
    let gguf = Gguf::parse(&bytes).unwrap();
    let tokens = runner::tokens(random.vocabulary, 80, 1);
    let processor = runner::processor(Kernels::detect(), 2);
    let found = Runner::new(&fixture.model, 2).run_alone(&processor, &tokens);
    let spec = fixture.model.spec();
    let expected = Reference::new(spec, &gguf, CachePrecision::F16).append(&tokens);
    let rows = found
        .chunks_exact(spec.vocab_size)
        .zip(expected.chunks_exact(spec.vocab_size));
    let divergence: f64 = rows
        .map(|(found, expected)| divergence(expected, found))
        .sum();
    let magnitudes = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    let furthest = magnitudes.fold(0.0, f32::max);
    Differences {
        furthest,
        divergence: divergence / tokens.len() as f64,
    }
}

/// `sum p (log p - log q)` for the distributions that two rows of logits stand for.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let log_sum = |logits: &[f32]| -> f64 {
        logits
            .iter()
            .map(|logit| f64::from(*logit).exp())
            .sum::<f64>()
            .ln()
    };
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    let terms = p.iter().zip(q).map(|(p, q)| {
        let (p, q) = (f64::from(*p) - p_sum, f64::from(*q) - q_sum);
        p.exp() * (p - q)
    });
    terms.sum()
}

/// Margins in logits above which two engines that round activations differently still
/// choose the same token.
const CLEAR_MARGIN: f32 = 0.5;

#[test]
fn smollm2_is_as_near_its_f32_copy_as_llama_cpp_is() {
    real_model_is_as_near_its_f32_copy_as_llama_cpp("smollm2");
}

#[test]
fn gemma_3_is_as_near_its_f32_copy_as_llama_cpp_is() {
    real_model_is_as_near_its_f32_copy_as_llama_cpp("gemma3");
}

/// Feeds every recorded prompt and continuation.
fn real_model_is_as_near_its_f32_copy_as_llama_cpp(name: &str) {
    let recorded = RealModel::read(name);
    let fixture = Fixture::new(&recorded.bytes);
    let processor = runner::processor(Kernels::detect(), 2);
    let (mut own_error, mut their_error) = (0.0f64, 0.0f64);
    let (mut own_choices, mut their_choices) = (0, 0);
    for prompt in &recorded.prompts {
        let tokens = [prompt.tokens.as_slice(), &prompt.continuation].concat();
        let first = prompt.tokens.len() - 1;
        let wanted = |position: usize| {
            position >= first || prompt.rows.iter().any(|row| row.position == position)
        };
        let mut runner = Runner::new(&fixture.model, tokens.len().div_ceil(64));
        let logits = runner.run_wanted(&processor, &tokens, &wanted);
        for row in &prompt.rows {
            let found = &logits[&row.position];
            for ((id, theirs), expected) in row.ids.iter().zip(&row.logits).zip(&row.reference) {
                own_error += f64::from(found[*id as usize] - expected).powi(2);
                their_error += f64::from(theirs - expected).powi(2);
            }
        }
        for (step, token) in prompt.continuation.iter().enumerate() {
            let best = best(&logits[&(first + step)]);
            let reference = prompt.reference_best[step];
            own_choices += usize::from(best == reference);
            their_choices += usize::from(*token == reference);
            assert!(
                best == *token || prompt.margins[step] < CLEAR_MARGIN,
                "{name}, {}, step {step}: token {best} instead of {token}",
                prompt.name
            );
        }
    }
    assert!(
        own_error < their_error,
        "{name}: squared error {own_error} against llama.cpp's {their_error}"
    );
    assert!(
        own_choices >= their_choices,
        "{name}: {own_choices} choices of the f32 copy, llama.cpp has {their_choices}"
    );
}

fn best(logits: &[f32]) -> u32 {
    let best = logits.iter().zip(0..).max_by(|a, b| a.0.total_cmp(b.0));
    best.unwrap().1
}

#[test]
fn a_batch_that_does_not_fit_is_refused_before_anything_is_written() {
    let bytes = RandomModel::llama().build();
    let fixture = Fixture::new(&bytes);
    let processor = runner::processor(Kernels::detect(), 1);
    let row = Row {
        token: 5,
        position: 0,
        sequence: 0,
        logits: true,
    };
    let cases = [
        (
            Row { token: 640, ..row },
            "token 640 of row 1 is not in the vocabulary of 640",
        ),
        (
            Row { sequence: 1, ..row },
            "row 1 belongs to sequence 1 of 1",
        ),
        (
            Row {
                position: 64,
                ..row
            },
            "position 64 of row 1 is beyond its sequence's 1 pages",
        ),
    ];
    for (bad, message) in cases {
        let error = refusal(&fixture, &processor, &[row, bad], &[&[0]]);
        assert_eq!(error.to_string(), message);
    }
    let error = refusal(&fixture, &processor, &[row], &[&[1]]);
    assert_eq!(error.to_string(), "row 0 needs page 1 of an arena of 1");
}

fn refusal(
    fixture: &Fixture,
    processor: &super::Processor,
    rows: &[Row],
    sequences: &[&[u32]],
) -> ForwardError {
    let model = &fixture.model;
    let mut kv = vec![7; model.kv_layout().page_bytes()];
    let (mut scratch, mut logits) = (super::Scratch::new(model), vec![7.0]);
    let batch = Batch { rows, sequences };
    let result = model.forward(processor, &batch, &mut kv, &mut scratch, &mut logits);
    assert!(kv.iter().all(|byte| *byte == 7) && logits == [7.0]);
    result.unwrap_err()
}

thread_local! {
    static TICKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A millisecond goes by between two looks.
fn ticking() -> std::time::Duration {
    std::time::Duration::from_millis(TICKS.replace(TICKS.get() + 1))
}

#[test]
fn every_moment_of_a_pass_belongs_to_one_phase_and_what_it_reads_is_counted() {
    let fixture = Fixture::new(&RandomModel::llama().build());
    let (model, spec) = (&fixture.model, fixture.model.spec());
    let mut scratch = super::Scratch::new(model).timed(ticking);
    let mut kv = vec![0; 4 * model.kv_layout().page_bytes()];
    let row = |position, sequence, logits| Row {
        token: 3,
        position,
        sequence,
        logits,
    };
    let mut pass = |rows: &[Row]| {
        let sequences: &[&[u32]] = &[&[0], &[1]];
        let batch = Batch { rows, sequences };
        let processor = runner::processor(Kernels::detect(), 1);
        let (scratch, kv) = (&mut scratch, &mut kv);
        model
            .forward(&processor, &batch, kv, scratch, &mut Vec::new())
            .unwrap();
        scratch.take_costs()
    };
    let costs = pass(&[row(0, 0, false), row(1, 0, true), row(0, 1, false)]);
    let layers = spec.layers.len() as u128;
    for (phase, ticks) in [
        (super::Phase::Embed, 1),
        (super::Phase::Project, layers),
        (super::Phase::Attention, layers),
        (super::Phase::Output, layers),
        (super::Phase::FeedForward, layers),
        (super::Phase::Head, 1),
    ] {
        assert_eq!(costs.time(phase).as_millis(), ticks, "{phase:?}");
    }
    assert_eq!(costs.weight_bytes, spec.product_bytes(true));
    // Two tokens of one sequence in all layers, and one of the other in all but the last.
    let page = model.kv_layout().page_bytes() as u64;
    let token = page / relight_kernels::PAGE_TOKENS as u64;
    let last_layer = model.kv_layout().token_bytes().last().unwrap() as u64;
    assert_eq!(costs.kv_bytes, 3 * token - last_layer);
    let next = pass(&[row(2, 0, false)]);
    assert_eq!(next.weight_bytes, spec.product_bytes(false));
    assert!(next.weight_bytes < costs.weight_bytes);
    assert_eq!(next.kv_bytes, 3 * (token - last_layer));
    let mut sum = costs;
    sum.add(&next);
    assert_eq!(sum.time(super::Phase::Embed).as_millis(), 2);
}

#[test]
fn a_file_for_another_plan_is_refused() {
    let bytes = RandomModel::llama().build();
    let spec = Spec::from_gguf(&Gguf::parse(&bytes).unwrap()).unwrap();
    let error = super::Model::new(spec, vec![0; 100], relight_kernels::KvType::F16).unwrap_err();
    assert_eq!(error.found, 100);
}
