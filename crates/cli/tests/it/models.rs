//! The commands about model files: what they print and how they exit.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use relight_tiny_model::TinyModel;
use serde_json::Value;

/// A folder of models that lives as long as one test.
struct Models {
    path: PathBuf,
}

impl Models {
    /// One tiny model called `tiny`.
    fn new(test: &str) -> Self {
        let name = format!("relight-it-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("tiny.gguf"), TinyModel::gemma3().build()).unwrap();
        Self { path }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relight"));
        command
            .args(line.split_whitespace())
            .env("RELIGHT_MODELS", &self.path)
            .env("HF_HUB_OFFLINE", "1")
            .current_dir(&self.path);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn json(&self, line: &str) -> Value {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Models {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn list_show_and_rm_speak_of_the_same_model() {
    let models = Models::new("list");
    let listed = models.json("list --json");
    assert_eq!(listed[0]["name"], "tiny");
    assert_eq!(listed[0]["architecture"], "gemma3");
    assert_eq!(listed[0]["context"], 1024);
    let shown = models.json("show tiny --json");
    assert_eq!(shown["path"], listed[0]["path"]);
    assert_eq!(shown["vocabulary"], 768);
    let table = text(&models.run("ls -q").stdout);
    assert_eq!(table.lines().count(), 2, "{table}");

    assert!(models.run("rm tiny").status.success());
    assert_eq!(models.json("list --json"), Value::Array(Vec::new()));
    let output = models.run("rm tiny");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no model or file called \"tiny\""));
}

#[test]
fn a_broken_model_is_listed_with_what_is_wrong() {
    let models = Models::new("broken");
    let whole = std::fs::read(models.path.join("tiny.gguf")).unwrap();
    std::fs::write(models.path.join("cut.gguf"), &whole[..whole.len() / 2]).unwrap();
    let listed = models.json("list --json");
    assert_eq!(listed[0]["name"], "cut");
    assert!(
        listed[0]["error"]
            .as_str()
            .unwrap()
            .contains("the file ends at byte")
    );
    assert_eq!(listed[1]["error"], Value::Null);
}

#[test]
fn inspect_prints_every_key_and_tensor() {
    let models = Models::new("inspect");
    let plain = text(&models.run("inspect tiny.gguf").stdout);
    assert!(
        plain.starts_with("GGUF version 3, alignment 32, "),
        "{plain}"
    );
    assert!(plain.contains("gemma3.attention.sliding_window (u32) = 40"));
    assert!(plain.contains("tokenizer.ggml.tokens (array of string) = [\"<pad>\", "));
    assert!(plain.contains("blk.5.post_ffw_norm.weight"));
    let json = models.json("inspect tiny.gguf --json");
    let tokens = &json["metadata"]["tokenizer.ggml.tokens"];
    assert_eq!(tokens["type"], "array of string");
    assert_eq!(tokens["value"].as_array().unwrap().len(), 768);
    assert_eq!(json["tensors"][0]["name"], "token_embd.weight");
    assert_eq!(
        json["tensors"][0]["dimensions"],
        serde_json::json!([128, 768])
    );
}

#[test]
fn a_file_that_is_no_model_is_an_error_that_names_the_byte() {
    let models = Models::new("hostile");
    let whole = std::fs::read(models.path.join("tiny.gguf")).unwrap();
    std::fs::write(models.path.join("short.gguf"), &whole[..37]).unwrap();
    let output = models.run("inspect short.gguf");
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("is not a model file that can be used"),
        "{message}"
    );
    assert!(message.contains("cut short at byte 24"), "{message}");
    let output = models.run("inspect absent.gguf");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    let models = Models::new("usage");
    for (line, code) in [
        ("list --jsno", 2),
        ("inspect", 2),
        ("frobnicate", 2),
        ("--help", 0),
        ("serve --help", 0),
        ("--version", 0),
        ("pull smollm2-135m", 1),
    ] {
        assert_eq!(models.run(line).status.code(), Some(code), "{line}");
    }
    let output = models.run("list --jsno");
    assert!(text(&output.stderr).contains("--json"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let models = Models::new("pipe");
    let mut child = models
        .command("inspect tiny.gguf --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Dropped unread: the next write finds the pipe closed.
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut message = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut message)
        .unwrap();
    assert!(status.success(), "{message}");
    assert_eq!(message, "");
}

#[test]
fn models_are_looked_for_where_the_flag_says_before_the_environment() {
    let models = Models::new("flag");
    let other = Models::new("flag-other");
    std::fs::rename(
        other.path.join("tiny.gguf"),
        other.path.join("renamed.gguf"),
    )
    .unwrap();
    let line = format!(
        "list --json --models-dir {}",
        Path::new(&other.path).display()
    );
    assert_eq!(models.json(&line)[0]["name"], "renamed");
}
