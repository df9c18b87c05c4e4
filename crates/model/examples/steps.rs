//! Speed of the forward pass alone: tokens per second of a prompt, and of one token after the
//! other, and what is left of the latter beside a busy neighbour.
//!
//! ```text
//! steps MODEL [--threads N] [--prompt N] [--chunk N] [--answer N] [--after N] [--runs N]
//!       [--kv-type f16|bf16|q8_0] [--neighbour]
//! ```
//!
//! A prompt is computed at once, or `--chunk` tokens at a time. `--after` is the context that
//! decode starts from.
//! `--neighbour` measures decode again and again while a loop burns one core, core after core
//! (with `taskset` of util-linux), and gives the ratio to the rate without.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measuring tool for developers: it prints, and reads the clock"
)]

use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Instant;

use relight_gguf::Gguf;
use relight_kernels::{Kernels, KvType, PAGE_TOKENS, Pool};
use relight_model::forward::{Batch, Model, Processor, Row, Scratch};
use relight_model::spec::Spec;
use relight_model::weights::WeightsPlan;

/// Tokens of a step before what is measured.
const PROMPT_CHUNK: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    let file = std::fs::read(&options.model)?;
    let gguf = Gguf::parse(&file)?;
    let spec = Spec::from_gguf(&gguf)?;
    let processor = Processor {
        kernels: Kernels::detect(),
        pool: Pool::new(options.threads),
    };
    let plan = WeightsPlan::new(&spec);
    let mut arena = vec![0; plan.bytes()];
    plan.build((&spec, &gguf), &mut arena, &processor.pool, &mut |_| ())?;
    drop(file);
    let model = Model::new(spec, arena, options.kv_type)?;
    let tokens = options.prompt.max(options.after + options.answer);
    let mut steps = Steps::new(&model, &processor, tokens)?;
    if options.prompt > 0 {
        let rate = steps.median(options.runs, 0..options.prompt, options.chunk)?;
        println!("prefill {:5} {rate:8.1} tokens/s", options.prompt);
    }
    steps.compute(0..options.after, PROMPT_CHUNK)?;
    let answer = options.after..options.after + options.answer;
    let quiet = steps.median(options.runs, answer.clone(), 1)?;
    println!("decode  {:5} {quiet:8.1} tokens/s", options.answer);
    if options.neighbour {
        for core in 0..std::thread::available_parallelism()?.get() {
            let _loop = Neighbour::start(core)?;
            let rate = steps.median(options.runs, answer.clone(), 1)?;
            let ratio = rate / quiet;
            println!("beside a loop on core {core} {rate:8.1} tokens/s, ratio {ratio:.2}");
        }
    }
    Ok(())
}

/// A loop that burns one core until it is dropped.
struct Neighbour(Child);

impl Neighbour {
    fn start(core: usize) -> std::io::Result<Self> {
        let core = core.to_string();
        let child = Command::new("taskset")
            .args(["-c", &core, "sh", "-c", "while :; do :; done"])
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It has nothing to save; what cannot be killed has ended.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A model with room for one sequence.
struct Steps<'a> {
    model: &'a Model<Vec<u8>>,
    processor: &'a Processor,
    table: Vec<u32>,
    kv: Vec<u8>,
    scratch: Scratch,
    logits: Vec<f32>,
}

impl<'a> Steps<'a> {
    fn new(
        model: &'a Model<Vec<u8>>,
        processor: &'a Processor,
        tokens: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let pages = u32::try_from(tokens.div_ceil(PAGE_TOKENS))?;
        let table: Vec<u32> = (0..pages).collect();
        Ok(Self {
            kv: vec![0; table.len() * model.kv_layout().page_bytes()],
            scratch: Scratch::new(model),
            logits: Vec::new(),
            model,
            processor,
            table,
        })
    }

    /// Tokens per second over the tokens of `positions`, `chunk` at a time, on what is before
    /// them: the median of `runs`, after one that does not count.
    fn median(
        &mut self,
        runs: usize,
        positions: Range<usize>,
        chunk: usize,
    ) -> Result<f64, Box<dyn Error>> {
        let mut rates = Vec::new();
        for run in 0..=runs {
            let start = Instant::now();
            self.compute(positions.clone(), chunk)?;
            if run > 0 {
                rates.push(positions.len() as f64 / start.elapsed().as_secs_f64());
            }
        }
        rates.sort_by(f64::total_cmp);
        Ok(rates.get(rates.len() / 2).copied().unwrap_or_default())
    }

    fn compute(&mut self, positions: Range<usize>, chunk: usize) -> Result<(), Box<dyn Error>> {
        let vocabulary = u32::try_from(self.model.spec().vocab_size)?;
        // Any ids do: the arithmetic does not depend on them.
        let rows: Vec<Row> = (u32::try_from(positions.start)?..u32::try_from(positions.end)?)
            .map(|position| Row {
                token: position.wrapping_mul(7919) % vocabulary,
                position,
                sequence: 0,
                logits: (position as usize + 1).is_multiple_of(chunk),
            })
            .collect();
        for rows in rows.chunks(chunk) {
            let batch = Batch {
                rows,
                sequences: &[&self.table],
            };
            let (kv, scratch) = (&mut self.kv, &mut self.scratch);
            self.model
                .forward(self.processor, &batch, kv, scratch, &mut self.logits)?;
        }
        Ok(())
    }
}

struct Options {
    model: PathBuf,
    threads: usize,
    prompt: usize,
    chunk: usize,
    answer: usize,
    after: usize,
    runs: usize,
    neighbour: bool,
    kv_type: KvType,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            model: PathBuf::from(arguments.next().ok_or("which model?")?),
            threads: 2,
            prompt: 512,
            chunk: usize::MAX,
            answer: 128,
            after: 0,
            runs: 5,
            neighbour: false,
            kv_type: KvType::F16,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.ok_or_else(|| format!("{argument}: no value"))
            };
            let mut number = || -> Result<usize, Box<dyn Error>> { Ok(value()?.parse()?) };
            match argument.as_str() {
                "--threads" => options.threads = number()?,
                "--prompt" => options.prompt = number()?,
                "--chunk" => options.chunk = number()?.max(1),
                "--answer" => options.answer = number()?.max(1),
                "--after" => options.after = number()?,
                "--runs" => options.runs = number()?,
                "--neighbour" => options.neighbour = true,
                "--kv-type" => {
                    let kv_type = KvType::from_name(&value()?);
                    options.kv_type = kv_type.ok_or("unknown --kv-type")?;
                }
                other => return Err(format!("unknown {other}").into()),
            }
        }
        Ok(options)
    }
}
