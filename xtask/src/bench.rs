//! `cargo xtask bench`: the work of docs/performance.md, Relight beside other servers on the
//! same machine in the same run, repetitions interleaved.

mod busy;
mod goals;
mod growth;
mod model;
mod noise;
mod peers;
mod plot;
mod roofline;
mod samples;
mod session;
mod table;
mod text;
mod work;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;

pub(crate) use self::busy::run as busy;
use self::model::Model;
use self::peers::{Engine, Field};
use self::roofline::Roofline;
use self::samples::{Piece, Samples};
use self::session::Session;
use self::work::Work;
use crate::setup;
use crate::workspace::Workspace;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure llama.cpp and ik_llama.cpp too, keep the samples and write docs/performance.md.
    #[arg(long)]
    peers: bool,
    /// A llama-server of llama.cpp to measure instead of building the pinned one.
    #[arg(long)]
    llama_server: Option<PathBuf>,
    /// A llama-server of ik_llama.cpp to measure instead of building the pinned one.
    #[arg(long)]
    ik_server: Option<PathBuf>,
    /// A relight to measure instead of building this version.
    #[arg(long)]
    relight: Option<PathBuf>,
    /// Repetitions of every measurement; the median counts.
    #[arg(long, default_value_t = 5)]
    repetitions: u64,
    /// Only this work: decode-2000, or decode for all of its kind; kinds are decode, prefill,
    /// streams, shared, turn, busy, speculation, start and queue.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Only models whose file name contains one of these.
    #[arg(long, value_delimiter = ',', value_name = "PART,...")]
    models: Vec<String>,
    /// Print the samples without keeping them.
    #[arg(long)]
    dry_run: bool,
    /// Measure nothing: write table and plots from the samples that are there.
    #[arg(long)]
    table: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    for name in &options.only {
        let is_known = Work::all().into_iter().any(|work| work.is_called(name));
        ensure!(is_known, "no work is called {name}");
    }
    setup::ensure_models(workspace)?;
    let field = Field::gather(workspace, options)?;
    let relight = field.relight().context("there is no relight to measure")?;
    let models = model::select(workspace, relight, &options.models)?;
    let mut samples = Samples::load(workspace)?;
    if !options.table {
        measure(workspace, options, &field, &models, &mut samples)?;
    }
    if options.dry_run || !(options.peers || options.table) {
        return Ok(());
    }
    // The table has every model that was ever measured and is still there.
    let models = model::select(workspace, relight, &[])?;
    table::write(workspace, &samples, &models)
}

fn measure(
    workspace: &Workspace,
    options: &Options,
    field: &Field,
    models: &[Model],
    samples: &mut Samples,
) -> Result<()> {
    samples.roofline = Roofline::measure(workspace)?;
    println!("{}", samples.roofline.describe());
    let keep = options.peers && !options.dry_run;
    if options.peers {
        let reason =
            |(engine, reason): &(Engine, String)| (engine.name().to_owned(), reason.clone());
        samples.absent = field.absent.iter().map(reason).collect();
    }
    let session = Session {
        workspace,
        field,
        repetitions: options.repetitions,
    };
    for model in models {
        // Into the page cache, so that the first start reads no disk either.
        std::fs::File::open(&model.path)
            .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()))
            .with_context(|| format!("cannot read {}", model.path.display()))?;
        for work in wanted(options, model) {
            println!("{}: {}", model.file, work.name());
            let piece = Piece {
                model: model.file.clone(),
                work: work.name(),
                date: samples::date()?,
                commit: samples::commit(workspace)?,
                roofline: samples.roofline,
                engines: session.measure(model, work)?,
            };
            samples.replace(piece);
            if keep {
                samples.save(workspace)?;
            }
        }
    }
    Ok(())
}

fn wanted(options: &Options, model: &Model) -> impl Iterator<Item = Work> {
    let family = model.family;
    let only = options.only.clone();
    Work::all().into_iter().filter(move |work| {
        work.suits(family) && (only.is_empty() || only.iter().any(|name| work.is_called(name)))
    })
}
