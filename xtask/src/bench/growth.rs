//! How cost grows with work: time per token with context, output and memory with the queue.

use super::model::Model;
use super::peers::Engine;
use super::roofline::Roofline;
use super::samples::Samples;
use super::work::{CONTEXTS, QUEUES, Work};

/// Points may lie this far off the line, and a longer queue cost that much output.
const TOLERANCE: f64 = 0.1;
/// The slope is that of reading keys and values if it is no steeper than this share of the
/// memory's speed makes it.
const SLOPE_SHARE_MIN: f64 = 0.5;
/// Memory that a queue of 256 may take beyond one of 32.
const MEMORY_GROWTH_MAX: f64 = 1.02;

/// A least-squares line through points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub(super) start: f64,
    pub(super) slope: f64,
    /// Largest distance of a point, as a share of its height on the line.
    pub(super) deviation: f64,
}

impl Line {
    /// Needs two different places at least.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
        let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
        if points.len() < 2 || spread == 0.0 {
            return None;
        }
        let common = points
            .iter()
            .map(|point| (point.0 - mean_x) * (point.1 - mean_y));
        let slope = common.sum::<f64>() / spread;
        let start = mean_y - slope * mean_x;
        let deviations = points.iter().map(|(x, y)| {
            let height = start + slope * x;
            ((y - height) / height).abs()
        });
        Some(Self {
            start,
            slope,
            deviation: deviations.fold(0.0, f64::max),
        })
    }
}

/// Seconds per token behind so many tokens.
pub(super) fn decode_points(samples: &Samples, model: &Model, engine: Engine) -> Vec<(f64, f64)> {
    let point = |context: usize| {
        let series = samples.series(&model.file, &Work::Decode(context).name(), engine)?;
        Some((context as f64, 1.0 / series.median("decode_tokens_s")?))
    };
    CONTEXTS.into_iter().filter_map(point).collect()
}

/// What the table says about growth on this model, one sentence each with its verdict.
pub(super) fn findings(samples: &Samples, model: &Model) -> Vec<(String, bool)> {
    let context = of_context(samples, model);
    context
        .into_iter()
        .chain(of_queue(samples, model))
        .collect()
}

fn of_context(samples: &Samples, model: &Model) -> Option<(String, bool)> {
    let points = decode_points(samples, model, Engine::Relight);
    // Below its window a model with windowed layers follows another line.
    let line = Line::through(points.get(usize::from(model.has_window())..)?)?;
    let Roofline { read_gb_s, .. } = samples.roofline;
    let gb_s = model.kv_slope() / line.slope / 1e9;
    let share = gb_s / read_gb_s[1];
    let times = points.iter().map(|point| format!("{:.1}", 1e3 * point.1));
    let text = format!(
        "{}: {} ms per token at {} tokens of context, off a line by {:.0} % at most; its slope is \
         {:.1} GB/s of keys and values, {:.0} % of what memory gives",
        model.file,
        times.collect::<Vec<_>>().join(", "),
        points
            .iter()
            .map(|point| format!("{:.0}", point.0))
            .collect::<Vec<_>>()
            .join(", "),
        100.0 * line.deviation,
        gb_s,
        100.0 * share,
    );
    Some((
        text,
        line.deviation <= TOLERANCE && share >= SLOPE_SHARE_MIN,
    ))
}

fn of_queue(samples: &Samples, model: &Model) -> Option<(String, bool)> {
    let median = |requests: usize, metric: &str| {
        let series = samples.series(&model.file, &Work::Queue(requests).name(), Engine::Relight)?;
        series.median(metric)
    };
    let rates: Option<Vec<f64>> = QUEUES
        .into_iter()
        .map(|requests| median(requests, "output_tokens_s"))
        .collect();
    let rates = rates?;
    let memory = QUEUES.map(|requests| median(requests, "memory_bytes").unwrap_or_default());
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let flat = least / rates.first()?;
    let growth = memory.last()? / memory.first()?.max(1.0);
    let list = |values: &[f64], unit: f64| {
        let values = values.iter().map(|value| format!("{:.0}", value / unit));
        values.collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "{}: {} output tokens/s with {QUEUES:?} requests at once, memory {} MiB after them",
        model.file,
        list(&rates, 1.0),
        list(&memory, 1_048_576.0),
    );
    Some((text, flat >= 1.0 - TOLERANCE && growth <= MEMORY_GROWTH_MAX))
}

#[cfg(test)]
mod tests;
