//! `cargo xtask oracle`: records the reference numbers of other implementations and compares
//! Relight's quantized arithmetic with llama.cpp's. Minutes, so no part of the gate; the
//! vectors it writes are committed and compared in every test run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::document;
use crate::python::Venv;
use crate::setup::{self, MODELS, TestModel};
use crate::terminal::{output, run};
use crate::workspace::Workspace;

/// Ids of the text over which divergences are averaged.
const DIVERGENCE_TOKENS: usize = 2048;
/// Relight's mean divergence may be this much of llama.cpp's.
const DIVERGENCE_RATIO_MAX: f64 = 1.1;

/// The oracle's Python environment, and a build of llama.cpp to use instead of its own.
#[derive(Debug)]
struct Oracle<'a> {
    workspace: &'a Workspace,
    venv: Venv,
    llama_library: Option<PathBuf>,
}

pub(crate) fn run_all(workspace: &Workspace, llama_library: Option<PathBuf>) -> Result<()> {
    setup::ensure_models(workspace)?;
    let requirements = workspace.path("oracle/requirements.txt");
    // With a library at hand, the package need not compile its own.
    let (folder, environment): (_, &[_]) = match llama_library {
        Some(_) => (".cache/oracle-bare", &[("CMAKE_ARGS", "-DLLAMA_BUILD=OFF")]),
        None => (".cache/oracle", &[]),
    };
    let folder = workspace.path(folder);
    let venv = Venv::ensure(&folder, &requirements, environment, |venv| {
        run(venv.command().arg(workspace.path("oracle/torch_cpu.py")))
    })?;
    let oracle = Oracle {
        workspace,
        venv,
        llama_library,
    };
    run(oracle.script("tiny.py").arg(workspace.path("oracle/tiny")))?;
    oracle.render_templates()?;
    let mut rows = Vec::new();
    for model in &MODELS {
        oracle.encode_corpus(model)?;
        let exact = oracle.dequantized(model)?;
        oracle.record(model, &exact)?;
        rows.push(oracle.divergence(model, &exact)?);
    }
    document::replace_section(
        &workspace.path("docs/accuracy.md"),
        "divergence",
        &divergence_table(&rows),
    )?;
    for row in &rows {
        println!(
            "{}: mean divergence {:.2} of llama.cpp's",
            row.model,
            row.ratio()
        );
        ensure!(
            row.ratio() <= DIVERGENCE_RATIO_MAX,
            "{}: above {DIVERGENCE_RATIO_MAX} of llama.cpp's",
            row.model
        );
    }
    Ok(())
}

impl Oracle<'_> {
    fn script(&self, name: &str) -> Command {
        let mut command = self.venv.command();
        command.arg(self.workspace.path("oracle").join(name));
        if let Some(library) = &self.llama_library {
            command.env("LLAMA_CPP_LIB_PATH", library);
        }
        command
    }

    /// Token ids of llama.cpp for the corpus of strings.
    fn encode_corpus(&self, model: &TestModel) -> Result<()> {
        let vectors = format!("oracle/vectors/tokenizer-{}.json", model.vectors);
        let mut encode = self.script("tokenizer.py");
        encode.arg("--model").arg(model.path(self.workspace));
        run(encode.arg("--out").arg(self.workspace.path(&vectors)))
    }

    /// Renderings of chat templates by Python's Jinja, the chat model's own among them.
    fn render_templates(&self) -> Result<()> {
        let [chat_model, _] = &MODELS;
        let mut render = self.script("template.py");
        render
            .arg("--templates")
            .arg(self.workspace.path("oracle/templates"));
        render.arg("--model").arg(chat_model.path(self.workspace));
        run(render
            .arg("--out")
            .arg(self.workspace.path("oracle/vectors/templates.json")))
    }

    /// The F32 copy of a model, made once.
    fn dequantized(&self, model: &TestModel) -> Result<PathBuf> {
        let target = self.workspace.cache("f32")?.join(model.file);
        if !target.exists() {
            println!("dequantizing {}", model.file);
            let partial = target.with_extension("partial");
            run(self
                .script("dequantize.py")
                .arg(model.path(self.workspace))
                .arg(&partial))?;
            std::fs::rename(&partial, &target)?;
        }
        Ok(target)
    }

    fn record(&self, model: &TestModel, exact: &Path) -> Result<()> {
        let vectors = self
            .workspace
            .path("oracle/vectors")
            .join(format!("{}.json", model.vectors));
        let mut record = self.script("record.py");
        record
            .arg(model.vectors)
            .arg(model.path(self.workspace))
            .arg(exact)
            .arg(vectors);
        run(&mut record)
    }

    fn divergence(&self, model: &TestModel, exact: &Path) -> Result<Divergence> {
        let folder = self.workspace.cache("divergence")?;
        let tokens = folder.join(format!("{}.tokens.json", model.vectors));
        let mut list = self.script("tokens.py");
        list.arg(model.path(self.workspace))
            .arg(DIVERGENCE_TOKENS.to_string());
        std::fs::write(&tokens, output(&mut list)?)?;
        let logits = folder.join(format!("{}.logits.f32", model.vectors));
        let mut ours = self.workspace.cargo();
        ours.args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "relight-model",
            "--example",
            "logits",
            "--",
        ]);
        ours.arg(model.path(self.workspace))
            .arg("--tokens")
            .arg(&tokens)
            .arg("--out")
            .arg(&logits);
        run(&mut ours)?;
        let mut compare = self.script("divergence.py");
        compare
            .arg(model.path(self.workspace))
            .arg(exact)
            .arg(&tokens)
            .arg(&logits);
        let found = Divergence::parse(model.file, &output(&mut compare)?);
        std::fs::remove_file(&logits)?;
        found
    }
}

/// Divergence of both engines from the f32 reference on one model, in nats.
#[derive(Debug)]
struct Divergence {
    model: &'static str,
    tokens: u64,
    relight: Measure,
    llama: Measure,
}

#[derive(Debug)]
struct Measure {
    mean: f64,
    p99: f64,
    same_best: f64,
}

impl Divergence {
    fn parse(model: &'static str, json: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(json)?;
        let measure = |engine: &str| -> Result<Measure> {
            let number = |key: &str| {
                let number = value
                    .get(engine)
                    .and_then(|found| found.get(key))
                    .and_then(Value::as_f64);
                number.with_context(|| format!("divergence.py says no {key} of {engine}"))
            };
            Ok(Measure {
                mean: number("kl_mean")?,
                p99: number("kl_p99")?,
                same_best: number("same_best")?,
            })
        };
        Ok(Self {
            model,
            tokens: value
                .get("tokens")
                .and_then(Value::as_u64)
                .context("divergence.py says no tokens")?,
            relight: measure("relight")?,
            llama: measure("llama.cpp")?,
        })
    }

    fn ratio(&self) -> f64 {
        self.relight.mean / self.llama.mean
    }
}

fn divergence_table(rows: &[Divergence]) -> String {
    let mut table = String::from(
        "| model | tokens | engine | mean KL, nats | 99th percentile | same best token | ratio of means |\n\
         |---|---:|---|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let Divergence { model, tokens, .. } = row;
        for (engine, measure, ratio) in [
            ("Relight", &row.relight, row.ratio()),
            ("llama.cpp", &row.llama, 1.0),
        ] {
            let Measure {
                mean,
                p99,
                same_best,
            } = measure;
            let best = 100.0 * same_best;
            table += &format!(
                "| {model} | {tokens} | {engine} | {mean:.5} | {p99:.4} | {best:.2} % | {ratio:.3} |\n"
            );
        }
    }
    table
}
