//! The table in docs/performance.md: medians, ratios, verdicts, and the losses in words.

use std::collections::BTreeMap;

use anyhow::Result;

use super::goals::{self, Bound, Row};
use super::model::Model;
use super::peers::{Engine, THREADS};
use super::roofline::Roofline;
use super::samples::{Piece, Samples, Series};
use super::session::NOISE_MAX;
use super::work::{STREAM_INPUT, STREAM_OUTPUT, Work};
use super::{growth, plot};
use crate::document;
use crate::workspace::Workspace;

pub(super) fn write(workspace: &Workspace, samples: &Samples, models: &[Model]) -> Result<()> {
    let mut content = circumstances(samples)?;
    let mut missed = Vec::new();
    let heading = "| work | Relight | llama.cpp | ik_llama.cpp | better than best | goal | | of the machine's limit: ours, best peer |\n|---|---:|---:|---:|---:|---|---|---|\n";
    for model in models {
        let lines: Vec<Line> = goals::rows()
            .iter()
            .filter_map(|row| Line::new(samples, model, row))
            .collect();
        if lines.is_empty() {
            continue;
        }
        content += &format!("\n### {}\n\n{heading}", model.file);
        for line in &lines {
            content += &line.markdown();
            if line.verdict == Some(false) {
                missed.push(format!("{}: {}", model.file, line.loss()));
            }
        }
        content += &failures(samples, model);
    }
    content += "\n### Cost as work grows\n\n";
    for (text, is_met) in models
        .iter()
        .flat_map(|model| growth::findings(samples, model))
    {
        content += &format!("- {text}: {}.\n", verdict(Some(is_met)));
        if !is_met {
            missed.push(text);
        }
    }
    content += &plot::write(workspace, samples, models)?;
    content += "\n### Missed\n\n";
    for line in &missed {
        content += &format!("- {line}\n");
    }
    if missed.is_empty() {
        content += "Nothing of what is measured.\n";
    }
    println!("{content}");
    document::replace_section(&workspace.path("docs/performance.md"), "bench", &content)
}

/// One row on one model.
struct Line {
    title: String,
    figures: [String; 3],
    ratio: String,
    goal: String,
    verdict: Option<bool>,
    share: String,
}

impl Line {
    fn new(samples: &Samples, model: &Model, row: &Row) -> Option<Self> {
        let piece = samples.piece(&model.file, &row.work.name())?;
        let median = |engine: Engine| piece.engines.get(engine.name())?.median(row.metric);
        let bound = (row.bound)(model.family);
        let plain = median(Engine::Relight);
        let is_speculated = matches!(bound, Some(Bound::Plain(_)));
        let ours = if is_speculated {
            median(Engine::Speculating)
        } else {
            plain
        }?;
        let peers = Engine::PEERS.map(median);
        let others = peers.iter().flatten().copied();
        let best = if row.more_is_better {
            others.reduce(f64::max)
        } else {
            others.reduce(f64::min)
        };
        let better = |than: f64| {
            if row.more_is_better {
                ours / than
            } else {
                than / ours
            }
        };
        let ratio = if is_speculated { plain } else { best }.map(better);
        let (goal, met) = judge(bound, ours / row.unit, ratio);
        let print = |value: f64| format!("{:.*}", row.digits, value / row.unit);
        let [llama, ik] = Engine::PEERS.map(|engine| {
            let failure = piece
                .engines
                .get(engine.name())
                .and_then(|series| series.failure.as_deref());
            figure(median(engine).map(print), failure)
        });
        Some(Self {
            title: row.title.clone(),
            figures: [print(ours), llama, ik],
            ratio: ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            goal,
            verdict: met,
            share: share(&piece.roofline, model, row, [Some(ours), best]),
        })
    }

    fn loss(&self) -> String {
        let [ours, ..] = &self.figures;
        let Self {
            title, ratio, goal, ..
        } = self;
        if goal.contains(" x ") {
            format!("{title}: {ratio} x where {goal} is the goal")
        } else {
            format!("{title}: {ours} where {goal} is the goal")
        }
    }

    fn markdown(&self) -> String {
        let [ours, llama, ik] = &self.figures;
        format!(
            "| {} | {ours} | {llama} | {ik} | {} | {} | {} | {} |\n",
            self.title,
            self.ratio,
            self.goal,
            verdict(self.verdict),
            self.share
        )
    }
}

/// A cell of a peer: its figure, its end, or neither.
fn figure(value: Option<String>, failure: Option<&str>) -> String {
    // The first word of a failure says how it failed.
    let end = failure.map(|failure| failure.split(':').next().unwrap_or_default());
    match (value, end) {
        (Some(value), Some(end)) => format!("{value}, then {end}"),
        (Some(value), None) => value,
        (None, Some(end)) => end.to_owned(),
        (None, None) => String::new(),
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "",
    }
}

/// The goal in words, and whether it is met.
fn judge(bound: Option<Bound>, ours: f64, ratio: Option<f64>) -> (String, Option<bool>) {
    match bound {
        None => (String::new(), None),
        Some(Bound::Best(factor)) => (
            format!("{factor:.2} x best"),
            ratio.map(|ratio| ratio >= factor),
        ),
        Some(Bound::Plain(factor)) => (
            format!("{factor:.2} x without"),
            ratio.map(|ratio| ratio >= factor),
        ),
        Some(Bound::AtLeast(least)) => (format!("at least {least}"), Some(ours >= least)),
        Some(Bound::Below(most)) => (format!("below {most}"), Some(ours < most)),
    }
}

/// Shares of what the machine could do at most, for rates that have such a limit.
fn share(roofline: &Roofline, model: &Model, row: &Row, figures: [Option<f64>; 2]) -> String {
    let limit = match row.work {
        Work::Decode(context) => roofline.decode_limit(model, context),
        Work::Prefill(_) => roofline.prefill_limit(model),
        Work::Streams(clients) if row.metric == "output_tokens_s" => {
            let tokens = (STREAM_INPUT as f64, STREAM_OUTPUT as f64);
            roofline.streams_limit(model, clients as f64, tokens)
        }
        _ => return String::new(),
    };
    if !(limit.is_finite() && limit > 0.0) {
        return String::new();
    }
    let shares = figures.into_iter().flatten();
    let shares = shares.map(|figure| format!("{:.0} %", 100.0 * figure / limit));
    shares.collect::<Vec<_>>().join(", ")
}

/// What did not go well on this model, in words: failures, noise, answers that differ.
fn failures(samples: &Samples, model: &Model) -> String {
    // Each finding with the work that shows it.
    let mut findings: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let pieces = samples
        .pieces
        .iter()
        .filter(|piece| piece.model == model.file);
    for piece in pieces {
        for (engine, series) in &piece.engines {
            let failure = series
                .failure
                .iter()
                .map(|failure| format!("{engine} {failure}"));
            let others = series.median("others").unwrap_or_default();
            let noise = (others > NOISE_MAX).then(|| {
                format!(
                    "others used {:.0} % of the machine beside {engine}",
                    100.0 * others
                )
            });
            for finding in failure.chain(noise).chain(differing(piece)) {
                let works = findings.entry(finding).or_default();
                if !works.contains(&piece.work.as_str()) {
                    works.push(&piece.work);
                }
            }
        }
    }
    let lines = findings
        .iter()
        .map(|(finding, works)| format!("\n- {}: {finding}", works.join(", ")));
    let lines: String = lines.collect();
    if lines.is_empty() {
        lines
    } else {
        lines + "\n"
    }
}

/// Whether speculation changed an answer, which it never may.
fn differing(piece: &Piece) -> Option<String> {
    let series = |engine: Engine| piece.engines.get(engine.name());
    let (plain, speculating) = (series(Engine::Relight)?, series(Engine::Speculating)?);
    let texts = |series: &Series| {
        let texts = series.samples.iter().flatten();
        let texts = texts.filter(|(name, _)| name.ends_with("_text"));
        texts
            .map(|(name, value)| (name.clone(), value.to_bits()))
            .collect::<Vec<_>>()
    };
    let is_same = texts(plain) == texts(speculating);
    let finding = if is_same {
        "the same"
    } else {
        "**not the same**"
    };
    Some(format!("every text was {finding} as without"))
}

/// Where, how and beside what this was measured.
fn circumstances(samples: &Samples) -> Result<String> {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = information.lines();
    let name = lines.find_map(|line| line.strip_prefix("model name"));
    let name = name.map_or("unknown processor", |text| {
        text.trim_start_matches([' ', '\t', ':'])
    });
    let widest = ["avx512_vnni", "avx2"]
        .into_iter()
        .find(|flag| information.contains(flag));
    let processors = std::thread::available_parallelism()?;
    let counts = samples
        .pieces
        .iter()
        .flat_map(|piece| piece.engines.values());
    let least = counts
        .filter(|series| series.failure.is_none())
        .map(|series| series.samples.len())
        .min();
    let dates = samples.pieces.iter().map(|piece| piece.date.as_str());
    let (first, last) = (
        dates.clone().min().unwrap_or_default(),
        dates.max().unwrap_or_default(),
    );
    let mut text = format!(
        "{name}, {processors} processors, {}; {THREADS} threads for each server; medians of {} or more \
         interleaved repetitions; measured from {first} to {last}, each row's engines in one run.\n{}.\n",
        widest.unwrap_or("no avx2"),
        least.unwrap_or_default(),
        samples.roofline.describe(),
    );
    for (engine, reason) in &samples.absent {
        text += &format!("{engine} is missing: {reason}.\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
