//! Renderings of Python's Jinja for the templates under `oracle/templates`. `oracle/README.md`
//! says how they were made.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::text::{ChatInput, ChatTemplate, SpecialTexts, TemplateLimits};

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle")
}

fn template(source: &str, special: &Json) -> ChatTemplate {
    let text = |key: &str| special[key].as_str().unwrap().to_owned();
    let special = SpecialTexts {
        bos: text("bos_token"),
        eos: text("eos_token"),
        unknown: text("unk_token"),
        padding: text("pad_token"),
    };
    let limits = TemplateLimits {
        fuel: 10_000_000,
        output_bytes: 1 << 20,
    };
    ChatTemplate::new(source, special, limits).unwrap()
}

fn chat(json: &Json, now: i64) -> ChatInput {
    ChatInput {
        messages: json["messages"].as_array().unwrap().clone(),
        tools: json.get("tools").cloned(),
        variables: json["variables"].as_object().cloned().unwrap_or_default(),
        add_generation_prompt: json["add_generation_prompt"].as_bool().unwrap_or(false),
        continue_final_message: false,
        now_unix_seconds: now,
    }
}

fn read_vectors() -> Json {
    let text = fs::read_to_string(oracle().join("vectors/templates.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Demands the recorded texts of the template called `name`, whose source is `source`.
fn check(vectors: &Json, name: &str, source: &str) {
    let template = template(source, &vectors["special"]);
    let mut count = 0;
    for rendering in vectors["renderings"].as_array().unwrap() {
        if rendering["template"] == name {
            let key = rendering["chat"].as_str().unwrap();
            let input = chat(&vectors["chats"][key], vectors["now"].as_i64().unwrap());
            let text = template.render(&input);
            // Both refuse, or both give the same text.
            let expected = rendering["text"].as_str();
            assert_eq!(text.as_deref().ok(), expected, "{name} on {key}: {text:?}");
            count += 1;
        }
    }
    assert!(count > 10, "{name}");
}

#[test]
fn texts_are_those_of_pythons_jinja() {
    let vectors = read_vectors();
    for name in ["chatml", "headers", "inst", "odds", "tools", "turns"] {
        let name = format!("{name}.jinja");
        let source = fs::read_to_string(oracle().join("templates").join(&name)).unwrap();
        check(&vectors, &name, &source);
    }
}

#[test]
fn the_models_own_template_renders_as_in_python() {
    let name = "SmolLM2-135M-Instruct.Q4_1.gguf";
    let head = crate::text::tokenizer::tests::vectors::read_head(name);
    let header = head.header();
    let source = header.metadata().str("tokenizer.chat_template").unwrap();
    check(&read_vectors(), name, source);
}
