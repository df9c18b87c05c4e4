//! Writes the logits of a model after every token of a sequence, as rows of f32.
//!
//! ```text
//! logits MODEL --tokens FILE.json [--out FILE.f32] [--compare FILE.f32]
//!        [--reference] [--isa scalar|avx2|avx-vnni|avx512] [--threads N] [--chunk N]
//!        [--kv-type f16|bf16|q8_0]
//! ```
//!
//! `FILE.json` is an array of token ids. `--reference` computes from the dequantized weights
//! in plain f32, with an f32 cache; the other options are for the engine's own pass.
//! `--compare` prints how far the logits are from those of another run: mean and 99th
//! percentile of the Kullback-Leibler divergence, and how often the best token is the same.

#![expect(clippy::print_stdout, reason = "a measuring tool for developers")]

use std::error::Error;
use std::path::PathBuf;

use relight_gguf::Gguf;
use relight_kernels::{Isa, Kernels, KvType, PAGE_TOKENS, Pool};
use relight_model::forward::{Batch, Model, Processor, Row, Scratch};
use relight_model::reference::{CachePrecision, Reference};
use relight_model::spec::Spec;
use relight_model::weights::WeightsPlan;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    let file = std::fs::read(&options.model)?;
    let gguf = Gguf::parse(&file)?;
    let spec = Spec::from_gguf(&gguf)?;
    let tokens: Vec<u32> = serde_json::from_slice(&std::fs::read(&options.tokens)?)?;
    if let Some(token) = tokens
        .iter()
        .find(|token| **token as usize >= spec.vocab_size)
    {
        return Err(format!("token {token} is not in the vocabulary").into());
    }
    let logits = if options.reference {
        Reference::new(&spec, &gguf, CachePrecision::F32).append(&tokens)
    } else {
        forward(&options, spec, &gguf, &tokens)?
    };
    let bytes: Vec<u8> = logits
        .iter()
        .flat_map(|logit| logit.to_le_bytes())
        .collect();
    if let Some(other) = &options.compare {
        let other = std::fs::read(other)?;
        compare(&logits, &other, logits.len() / tokens.len().max(1))?;
    }
    if let Some(out) = &options.out {
        std::fs::write(out, bytes)?;
    }
    Ok(())
}

/// Prints how far `logits` are from those in `other`, rows of `cols`.
fn compare(logits: &[f32], other: &[u8], cols: usize) -> Result<(), Box<dyn Error>> {
    let other: Vec<f32> = other
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    if other.len() != logits.len() {
        return Err("the other run has another number of logits".into());
    }
    let cols = cols.max(1);
    let rows = other.chunks_exact(cols).zip(logits.chunks_exact(cols));
    let best = |row: &[f32]| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map(|(token, _)| token)
    };
    let same = rows.clone().filter(|(p, q)| best(p) == best(q)).count();
    let mut divergences: Vec<f64> = rows.map(|(p, q)| divergence(p, q)).collect();
    divergences.sort_by(f64::total_cmp);
    let count = divergences.len();
    let high = divergences.get(count * 99 / 100);
    println!(
        "mean KL {:.6}, 99th percentile {:.5}, same best token {:.2} %",
        divergences.iter().sum::<f64>() / count as f64,
        high.copied().unwrap_or_default(),
        100.0 * same as f64 / count as f64,
    );
    Ok(())
}

/// Of the distribution of `q` from that of `p`, in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let normal = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let terms = row.iter().map(|x| f64::from(x - max).exp());
        f64::from(max) + terms.sum::<f64>().ln()
    };
    let (p_normal, q_normal) = (normal(p), normal(q));
    let terms = p.iter().zip(q).map(|(p, q)| {
        let (p, q) = (f64::from(*p) - p_normal, f64::from(*q) - q_normal);
        p.exp() * (p - q)
    });
    terms.sum()
}

/// The logits of all `tokens`, computed in chunks.
fn forward(
    options: &Options,
    spec: Spec,
    gguf: &Gguf<'_>,
    tokens: &[u32],
) -> Result<Vec<f32>, Box<dyn Error>> {
    let processor = Processor {
        kernels: options.kernels,
        pool: Pool::new(options.threads),
    };
    let plan = WeightsPlan::new(&spec);
    let mut arena = vec![0; plan.bytes()];
    plan.build((&spec, gguf), &mut arena, &processor.pool, &mut |_| ())?;
    let model = Model::new(spec, arena, options.kv_type)?;
    let pages = u32::try_from(tokens.len().div_ceil(PAGE_TOKENS))?;
    let table: Vec<u32> = (0..pages).collect();
    let mut kv = vec![0; table.len() * model.kv_layout().page_bytes()];
    let mut scratch = Scratch::new(&model);
    let (mut all, mut logits) = (Vec::new(), Vec::new());
    let rows: Vec<Row> = (0..)
        .zip(tokens)
        .map(|(position, token)| row(position, *token))
        .collect();
    for chunk in rows.chunks(options.chunk) {
        let batch = Batch {
            rows: chunk,
            sequences: &[&table],
        };
        model.forward(&processor, &batch, &mut kv, &mut scratch, &mut logits)?;
        all.extend_from_slice(&logits);
    }
    Ok(all)
}

fn row(position: u32, token: u32) -> Row {
    Row {
        token,
        position,
        sequence: 0,
        logits: true,
    }
}

struct Options {
    model: PathBuf,
    tokens: PathBuf,
    out: Option<PathBuf>,
    compare: Option<PathBuf>,
    reference: bool,
    kernels: Kernels,
    threads: usize,
    chunk: usize,
    kv_type: KvType,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut model, mut tokens, mut out, mut compare) = (None, None, None, None);
        let (mut reference, mut kernels) = (false, Kernels::detect());
        let (mut threads, mut chunk, mut kv_type) = (2, 512, KvType::F16);
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument}: no value"))
            };
            match argument.as_str() {
                "--tokens" => tokens = Some(value()?.into()),
                "--out" => out = Some(value()?.into()),
                "--compare" => compare = Some(value()?.into()),
                "--reference" => reference = true,
                "--isa" => kernels = Kernels::with_isa(isa(&value()?)?)?,
                "--threads" => threads = value()?.parse()?,
                "--chunk" => chunk = value()?.parse::<usize>()?.max(1),
                "--kv-type" => kv_type = KvType::from_name(&value()?).ok_or("unknown --kv-type")?,
                option if option.starts_with('-') => return Err(format!("unknown {option}").into()),
                path if model.is_none() => model = Some(path.into()),
                other => return Err(format!("a second model: {other}").into()),
            }
        }
        Ok(Self {
            model: model.ok_or("which model?")?,
            tokens: tokens.ok_or("--tokens FILE.json is missing")?,
            out,
            compare,
            reference,
            kernels,
            threads,
            chunk,
            kv_type,
        })
    }
}

fn isa(name: &str) -> Result<Isa, String> {
    let isa = Isa::ALL.into_iter().find(|isa| isa.name() == name);
    isa.ok_or_else(|| format!("--isa {name}: not one of scalar, avx2, avx-vnni, avx512"))
}
