//! Command lines as people type them.

use std::ffi::OsString;

use clap::CommandFactory;
use relight_protocol::KvType;

use super::engine::Kernels;
use super::{Cli, Command, RunArgs, ServeArgs};

fn parse(line: &str) -> Result<Command, clap::Error> {
    let words = ["relight"].into_iter().chain(line.split_whitespace());
    Cli::from_words(words.map(OsString::from)).map(|cli| cli.command)
}

fn serve(line: &str) -> ServeArgs {
    match parse(line) {
        Ok(Command::Serve(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

fn run(line: &str) -> RunArgs {
    match parse(line) {
        Ok(Command::Run(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_flags_do_not_contradict_each_other() {
    Cli::command().debug_assert();
}

#[test]
fn without_a_command_serve_is_meant() {
    assert_eq!(serve("").model.source(), None);
    assert_eq!(serve("-m x.gguf").model.source().as_deref(), Some("x.gguf"));
    assert_eq!(serve("x.gguf --port 1").listen.port, 1);
    assert_eq!(
        serve("-hf a/b:Q8_0").model.source().as_deref(),
        Some("hf:a/b:Q8_0")
    );
    assert_eq!(
        serve("pypi:demo").model.source().as_deref(),
        Some("pypi:demo")
    );
    assert!(parse("--help").is_err_and(|error| error.exit_code() == 0));
}

#[test]
fn short_flags_of_several_letters_are_those_of_llama_server() {
    let args = serve(
        "serve m.gguf -c 4096 -np 3 -t 2 -b 256 -ngl 99 -tb 4 -ub 512 -ctk q8_0 -ctv f16 -fa on",
    );
    assert_eq!(args.engine.ctx_size, Some(4096));
    assert_eq!(args.engine.parallel, Some(3));
    assert_eq!(args.engine.threads, Some(2));
    assert_eq!(args.engine.batch_size, Some(256));
    let flags: Vec<&str> = args
        .without_effect()
        .into_iter()
        .filter_map(|reason| reason.split(':').next())
        .collect();
    let expected = [
        "--n-gpu-layers",
        "--threads-batch",
        "--ubatch-size",
        "--cache-type-k",
        "--flash-attn",
    ];
    assert_eq!(flags, expected);
}

#[test]
fn long_names_of_vllm_mean_the_same() {
    let args = serve(
        "serve m --served-model-name gpt --max-model-len 100 --max-num-seqs 2 --kernels scalar",
    );
    assert_eq!(args.alias, ["gpt"]);
    let config = args.engine.config("m".as_ref()).unwrap();
    assert_eq!((config.context_tokens, config.slots), (Some(100), 2));
    assert_eq!(args.engine.kernels, Some(Kernels::Scalar));
}

#[test]
fn keys_and_values_are_kept_as_one_of_three_types() {
    let kept = |line: &str| serve(line).engine.config("m".as_ref()).unwrap().kv_type;
    assert_eq!(kept("serve m"), KvType::F16);
    for kv_type in KvType::ALL {
        assert_eq!(
            kept(&format!("serve m --kv-type {}", kv_type.word())),
            kv_type
        );
    }
    assert_eq!(kept("serve m --kv-cache-dtype bf16"), KvType::Bf16);
    let error = parse("serve m --kv-type q4_0").unwrap_err().to_string();
    let names = ["--kv-type", "q4_0", "f16, bf16, q8_0"];
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
}

/// llama-server has a type for keys and one for values.
#[test]
fn two_types_that_agree_are_one() {
    let told = |line: &str| {
        let engine = serve(line).engine;
        let config = engine.config("m".as_ref()).unwrap();
        (config.kv_type, engine.without_effect().len())
    };
    assert_eq!(told("serve m -ctk q8_0 -ctv q8_0"), (KvType::Q8_0, 0));
    assert_eq!(told("serve m -ctk f16 -ctv f16"), (KvType::F16, 0));
    assert_eq!(told("serve m -ctk q8_0"), (KvType::F16, 1));
    assert_eq!(told("serve m -ctk q4_0 -ctv q4_0"), (KvType::F16, 2));
    assert_eq!(
        told("serve m -ctk bf16 -ctv bf16 --kv-type q8_0"),
        (KvType::Q8_0, 2)
    );
}

#[test]
fn a_context_of_zero_is_the_models_own() {
    let config = serve("serve m -c 0").engine.config("m".as_ref()).unwrap();
    assert_eq!(config.context_tokens, None);
}

#[test]
fn flags_that_say_what_requests_say_are_named_as_such() {
    let args = serve("serve m -n -1 -s 42 --temp 0.7 --metrics --no-webui --jinja");
    assert_eq!(args.without_effect().len(), 6);
    assert!(serve("serve m").without_effect().is_empty());
}

#[test]
fn an_unknown_flag_is_a_usage_error_with_the_nearest_name() {
    for (line, nearest) in [
        ("serve m --ctx-sise 4", "--ctx-size"),
        ("serve m --parralel 4", "--parallel"),
        ("pul x", "pull"),
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(nearest), "{line}: {error}");
    }
    for line in [
        "serve m --parallel 0",
        "serve m --port 70000",
        "rm",
        "serve a -m b",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn a_prompt_is_the_rest_of_the_line() {
    let check = |line: &str, source: Option<&str>, prompt: Option<&str>| {
        let args = run(line);
        assert_eq!(args.source().as_deref(), source, "{line}");
        assert_eq!(args.prompt().as_deref(), prompt, "{line}");
    };
    check("run", None, None);
    check("run m", Some("m"), None);
    check("run m tell me more", Some("m"), Some("tell me more"));
    check("run -m m.gguf tell me", Some("m.gguf"), Some("tell me"));
    check("run -hf a/b tell me", Some("hf:a/b"), Some("tell me"));
    check("run m -- -np is a flag", Some("m"), Some("-np is a flag"));
    assert_eq!(run("run m -n 5 more").sampling.predict, Some(5));
}
