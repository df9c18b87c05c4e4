//! The table in docs/performance.md: medians, ratios, and the losses in words.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Sample, Series};
use crate::document;
use crate::workspace::Workspace;

/// A measured quantity: how to read it, print it, and which way is better.
struct Quantity {
    name: &'static str,
    value: fn(&Sample) -> f64,
    unit: f64,
    digits: usize,
    more_is_better: bool,
}

const QUANTITIES: &[Quantity] = &[
    Quantity {
        name: "decode, 1 stream, 128 tokens (tokens/s)",
        value: |sample| sample.decode_tokens_s,
        unit: 1.0,
        digits: 0,
        more_is_better: true,
    },
    Quantity {
        name: "prefill, 512 tokens (tokens/s)",
        value: |sample| sample.prefill_tokens_s,
        unit: 1.0,
        digits: 0,
        more_is_better: true,
    },
    Quantity {
        name: "8 streams, 200 in, 64 out (output tokens/s)",
        value: |sample| sample.streams_tokens_s,
        unit: 1.0,
        digits: 0,
        more_is_better: true,
    },
    Quantity {
        name: "pause within the 8 streams, 99th percentile (ms)",
        value: |sample| sample.pause_p99_s,
        unit: 1e-3,
        digits: 0,
        more_is_better: false,
    },
    Quantity {
        name: "memory after the first completion, all processes, PSS (MiB)",
        value: |sample| sample.first_memory_bytes,
        unit: 1_048_576.0,
        digits: 0,
        more_is_better: false,
    },
    Quantity {
        name: "memory after the 8 streams, all processes, PSS (MiB)",
        value: |sample| sample.memory_bytes,
        unit: 1_048_576.0,
        digits: 0,
        more_is_better: false,
    },
    Quantity {
        name: "start to first completion, warm page cache (s)",
        value: |sample| sample.start_s,
        unit: 1.0,
        digits: 2,
        more_is_better: false,
    },
];

/// Above this share of the machine used by others, figures say little.
const NOISE_MAX: f64 = 0.1;

pub(super) fn write(workspace: &Workspace, series: &[Series], dry_run: bool) -> Result<()> {
    let table = format!("{}\n{}", circumstances(series)?, table(series));
    println!("{table}");
    if noise(series) > NOISE_MAX {
        println!("warning: others kept the machine busy; measure again when it is quiet");
    }
    if dry_run {
        return Ok(());
    }
    let samples = workspace.cache("bench")?.join("samples.json");
    std::fs::write(&samples, format!("{:#}\n", samples_json(series)))?;
    document::replace_section(&workspace.path("docs/performance.md"), "bench", &table)
}

fn table(series: &[Series]) -> String {
    let mut lines = String::from(
        "| model | measured | Relight | llama.cpp | Relight is better by |\n|---|---|---:|---:|---:|\n",
    );
    let mut losses = Vec::new();
    for pair in series.chunks(2) {
        let [relight, llama] = pair else { continue };
        for quantity in QUANTITIES {
            let (ours, theirs) = (median(relight, quantity), median(llama, quantity));
            let ratio = if quantity.more_is_better {
                ours / theirs
            } else {
                theirs / ours
            };
            let digits = quantity.digits;
            let (model, name) = (relight.model.file, quantity.name);
            lines += &format!(
                "| {model} | {name} | {ours:.digits$} | {theirs:.digits$} | {ratio:.2} |\n"
            );
            if ratio < 1.0 {
                losses.push(format!("{model}: {name}, {ratio:.2}"));
            }
        }
    }
    let verdict = if losses.is_empty() {
        "Relight loses nowhere in this table.".to_owned()
    } else {
        format!("Where Relight loses:\n\n- {}", losses.join("\n- "))
    };
    format!("{lines}\n{verdict}\n")
}

fn median(series: &Series, quantity: &Quantity) -> f64 {
    let mut values: Vec<f64> = series.samples.iter().map(quantity.value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN) / quantity.unit
}

/// One sentence on where, how and beside what this was measured.
fn circumstances(series: &[Series]) -> Result<String> {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |text| {
        text.trim_start_matches([' ', '\t', ':'])
    });
    let wide = ["avx512_vnni", "avx2"]
        .into_iter()
        .find(|flag| information.contains(flag));
    let wide = wide.unwrap_or("no avx2");
    let processors = std::thread::available_parallelism()?;
    let others = series
        .iter()
        .flat_map(|one| &one.samples)
        .map(|sample| sample.others);
    let others = 100.0 * others.fold(0.0, f64::max);
    Ok(format!(
        "{model}, {processors} processors, {wide}; 2 threads and 8 slots each; medians of interleaved repetitions; \
         others used at most {others:.0} % of the machine meanwhile.\n"
    ))
}

/// The largest share of the machine that others used during a sample.
fn noise(series: &[Series]) -> f64 {
    let samples = series.iter().flat_map(|one| &one.samples);
    samples.map(|sample| sample.others).fold(0.0, f64::max)
}

fn samples_json(series: &[Series]) -> Value {
    let rows = series.iter().map(|one| {
        let samples = one.samples.iter().map(|sample| {
            json!({
                "start_s": sample.start_s,
                "decode_tokens_s": sample.decode_tokens_s,
                "prefill_tokens_s": sample.prefill_tokens_s,
                "streams_tokens_s": sample.streams_tokens_s,
                "pause_p99_s": sample.pause_p99_s,
                "first_memory_bytes": sample.first_memory_bytes,
                "memory_bytes": sample.memory_bytes,
                "others": sample.others,
            })
        });
        json!({
            "model": one.model.file,
            "engine": format!("{:?}", one.engine),
            "samples": samples.collect::<Vec<_>>(),
        })
    });
    rows.collect()
}
