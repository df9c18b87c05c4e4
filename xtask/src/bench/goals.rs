//! The rows of the table and what each is meant to reach.

use super::model::Family;
use super::work::{CLIENTS, CONTEXTS, PROMPTS, SPECULATORS, Work};

/// How a figure is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// So many times better than the best peer, whichever way is better.
    Best(f64),
    /// So many times Relight's own figure without the feature.
    Plain(f64),
    AtLeast(f64),
    Below(f64),
}

/// One quantity of a piece of work.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) work: Work,
    pub(super) metric: &'static str,
    pub(super) title: String,
    /// Size of the unit in that of the samples, and digits after the point.
    pub(super) unit: f64,
    pub(super) digits: usize,
    pub(super) more_is_better: bool,
    pub(super) bound: fn(Family) -> Option<Bound>,
}

impl Row {
    fn rate(work: Work, metric: &'static str, title: String) -> Self {
        Self {
            work,
            metric,
            title,
            unit: 1.0,
            digits: 0,
            more_is_better: true,
            bound: |_family| None,
        }
    }

    fn time(work: Work, metric: &'static str, title: String) -> Self {
        Self {
            unit: 1e-3,
            more_is_better: false,
            ..Self::rate(work, metric, title)
        }
    }

    fn ratio(work: Work, metric: &'static str, title: String) -> Self {
        Self {
            digits: 2,
            ..Self::rate(work, metric, title)
        }
    }

    fn memory(work: Work, metric: &'static str, title: String) -> Self {
        Self {
            unit: 1_048_576.0,
            ..Self::time(work, metric, title)
        }
    }

    fn bound(self, bound: fn(Family) -> Option<Bound>) -> Self {
        Self { bound, ..self }
    }
}

/// A goal for each family, 0 where there is none.
fn best(family: Family, [smol, gemma, one, eight]: [f64; 4]) -> Option<Bound> {
    let factor = match family {
        Family::SmolLm2 => smol,
        Family::Gemma3 => gemma,
        Family::OneB => one,
        Family::EightB => eight,
    };
    (factor > 0.0).then_some(Bound::Best(factor))
}

/// All rows, in the order of the table.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = one_stream();
    for clients in CLIENTS {
        rows.extend(streams(clients));
    }
    rows.extend(one_by_one());
    for streams in SPECULATORS {
        rows.extend(speculation(streams));
    }
    rows
}

fn one_stream() -> Vec<Row> {
    let decode = CONTEXTS.map(|context| {
        let title = format!("decode at {context} tokens (tokens/s)");
        let row = Row::rate(Work::Decode(context), "decode_tokens_s", title);
        match context {
            0 => row.bound(|family| best(family, [1.5, 1.05, 1.08, 1.0])),
            2000 | 8000 => row.bound(|family| best(family, [2.2, 1.3, 0.0, 0.0])),
            _ => row,
        }
    });
    let prefill = PROMPTS.map(|tokens| {
        let title = format!("prefill of {tokens} tokens (tokens/s)");
        let row = Row::rate(Work::Prefill(tokens), "prefill_tokens_s", title);
        row.bound(|family| best(family, [2.0, 2.0, 1.6, 1.7]))
    });
    decode.into_iter().chain(prefill).collect()
}

fn streams(clients: usize) -> [Row; 5] {
    let work = Work::Streams(clients);
    let title = |what: &str| format!("{clients} streams: {what}");
    let output = Row::rate(work, "output_tokens_s", title("output (tokens/s)"));
    let output = match clients {
        4 => output.bound(|family| best(family, [0.0, 4.0, 0.0, 0.0])),
        8 => output.bound(|family| best(family, [5.0, 4.0, 2.5, 0.0])),
        _ => output.bound(|family| best(family, [5.0, 4.0, 0.0, 0.0])),
    };
    [
        output,
        Row::time(work, "first_p50_s", title("first token, median (ms)"))
            .bound(|_family| Some(Bound::Best(5.0))),
        Row::time(
            work,
            "first_p99_s",
            title("first token, 99th percentile (ms)"),
        )
        .bound(|_family| Some(Bound::Best(3.0))),
        Row::time(
            work,
            "gap_p99_s",
            title("gap between tokens, 99th percentile (ms)"),
        ),
        Row {
            digits: 1,
            more_is_better: false,
            ..Row::ratio(work, "gap_ratio", title("that gap in median gaps"))
        }
        .bound(|_family| Some(Bound::Below(3.0))),
    ]
}

fn one_by_one() -> Vec<Row> {
    let shared = "16 requests that share 1000 tokens";
    vec![
        Row::time(Work::Shared, "total_s", format!("{shared}: all done (ms)"))
            .bound(|_family| Some(Bound::Best(12.0))),
        Row {
            more_is_better: false,
            ..Row::rate(
                Work::Shared,
                "computed_tokens",
                format!("{shared}: prompt tokens computed"),
            )
        },
        Row::time(
            Work::Turn,
            "cold_first_s",
            "4000 tokens, first turn: first token (ms)".to_owned(),
        ),
        Row::time(
            Work::Turn,
            "second_first_s",
            "second turn: first token (ms)".to_owned(),
        ),
        Row {
            digits: 1,
            ..Row::ratio(
                Work::Turn,
                "turn_ratio",
                "first turn's wait in second turn's".to_owned(),
            )
        }
        .bound(|_family| Some(Bound::AtLeast(20.0))),
        Row::ratio(
            Work::Busy,
            "busy_ratio",
            "decode beside a busy loop on one processor, of quiet".to_owned(),
        )
        .bound(|_family| Some(Bound::AtLeast(0.5))),
        Row::time(
            Work::Start,
            "start_s",
            "start to first completion (ms)".to_owned(),
        )
        .bound(|_family| Some(Bound::Best(1.0 / 0.7))),
        Row::memory(
            Work::Start,
            "memory_bytes",
            "memory after it, context 8192 (MiB)".to_owned(),
        )
        .bound(|_family| Some(Bound::Best(1.0))),
        Row::memory(
            Work::Start,
            "filled_memory_bytes",
            "memory after a long prompt (MiB)".to_owned(),
        )
        .bound(|_family| Some(Bound::Best(1.0))),
    ]
}

/// Beside the same streams without speculation.
fn speculation(streams: usize) -> [Row; 3] {
    let row = |metric, what: &str| {
        let title = match streams {
            1 => format!("n-gram speculation on {what} (tokens/s)"),
            _ => format!("the same with {streams} streams on {what}"),
        };
        Row::rate(Work::Speculation(streams), metric, title)
    };
    let gain: fn(Family) -> Option<Bound> = match streams {
        1 => |_family| Some(Bound::Plain(1.8)),
        _ => |_family| Some(Bound::Plain(0.97)),
    };
    [
        row("code_tokens_s", "a code edit").bound(gain),
        row("json_tokens_s", "JSON").bound(gain),
        row("plain_tokens_s", "text that does not repeat")
            .bound(|_family| Some(Bound::Plain(0.97))),
    ]
}
