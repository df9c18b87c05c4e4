use super::graph::{Edge, check_edges};
use super::source::{FILE_LINES_MAX, FUNCTION_LINES_MAX};
use super::*;

fn messages(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

fn check_source(file: &str, content: &str) -> Vec<String> {
    messages(
        &Source::parse(file, content, &TestFiles::default())
            .unwrap()
            .check(),
    )
}

#[test]
fn the_repository_is_tidy() {
    let found = findings(&Workspace::of_this_crate().unwrap()).unwrap();
    assert!(found.is_empty(), "{:#?}", messages(&found));
}

#[test]
fn a_module_without_docs_is_found() {
    assert_eq!(
        check_source("crates/model/src/spec.rs", "pub struct Spec;\n"),
        ["crates/model/src/spec.rs:1: a module opens with `//!` docs"]
    );
    assert!(check_source("crates/model/src/spec.rs", "//! Specs.\npub struct Spec;\n").is_empty());
    assert!(check_source("crates/model/src/spec/tests.rs", "use super::*;\n").is_empty());
}

#[test]
fn a_function_is_measured_between_its_braces_without_blanks_and_comments() {
    let source = |lines: usize| {
        let body = "    work();\n\n    // why\n".repeat(lines);
        format!("//! Docs.\nfn long() {{\n{body}}}\n")
    };
    assert!(check_source("crates/model/src/a.rs", &source(FUNCTION_LINES_MAX)).is_empty());
    assert_eq!(
        check_source("crates/model/src/a.rs", &source(FUNCTION_LINES_MAX + 1)),
        ["crates/model/src/a.rs:2: `long` has 71 lines; at most 70"]
    );
}

#[test]
fn a_file_is_measured_without_blanks_and_comments() {
    let source = |lines: usize| format!("//! Docs.\n{}", "// why\n\nuse std::fmt;\n".repeat(lines));
    assert!(check_source("crates/model/src/a.rs", &source(FILE_LINES_MAX)).is_empty());
    assert_eq!(
        check_source("crates/model/src/a.rs", &source(FILE_LINES_MAX + 1)),
        ["crates/model/src/a.rs: 501 lines of code; at most 500"]
    );
}

#[test]
fn unsafe_code_outside_its_places_is_found() {
    let source = "//! Docs.\nfn read() {\n    unsafe { work() }\n}\n";
    assert_eq!(
        check_source("crates/model/src/a.rs", source),
        [
            "crates/model/src/a.rs:3: unsafe code stands in `kernels`, the engine's arena and the roofline only"
        ]
    );
    assert!(check_source("crates/kernels/src/a.rs", source).is_empty());
    assert!(check_source("crates/engine/src/arena.rs", source).is_empty());
    assert_eq!(
        check_source(
            "crates/gguf/src/a.rs",
            "//! D.\nunsafe fn f() {}\nunsafe impl Send for A {}\n"
        )
        .len(),
        2
    );
}

#[test]
fn the_front_asserts_only_in_tests_and_constants() {
    let live = "//! Docs.\nfn f() {\n    assert_eq!(1, 1);\n}\n";
    assert_eq!(
        check_source("crates/server/src/a.rs", live),
        ["crates/server/src/a.rs:3: `assert_eq!` in the process that must not die"]
    );
    assert!(check_source("crates/engine/src/a.rs", live).is_empty());
    let elsewhere = "//! Docs.\nconst _: () = assert!(1 < 2);\n#[cfg(test)]\nmod a {\n    fn f() { assert!(true); }\n}\n";
    assert!(check_source("crates/server/src/a.rs", elsewhere).is_empty());
}

#[test]
fn words_names_and_places_are_found() {
    let mark = concat!("// TO", "DO: later");
    assert_eq!(text::check("crates/model/src/a.rs", mark).len(), 1);
    assert_eq!(
        text::check("docs/a.md", concat!("see /wo", "rk/main")).len(),
        1
    );
    assert_eq!(text::check("crates/model/src/utils.rs", "").len(), 1);
    assert_eq!(text::check("crates/model/src/helpers/mod.rs", "").len(), 1);
    assert!(text::check("crates/model/src/tokenizer.rs", "// the worker's home\n").is_empty());
}

#[test]
fn large_files_and_model_files_are_found() {
    assert_eq!(text::check_size("docs/picture.png", (1 << 20) + 1).len(), 1);
    assert_eq!(text::check_size("crates/model/tests/a.gguf", 1000).len(), 1);
    assert!(text::check_size("oracle/tiny/llama-gqa.gguf", 300_000).is_empty());
}

#[test]
fn the_readme_shows_both_commands_on_its_first_screen() {
    assert!(
        text::check_readme_screen("# Relight\n    cargo run --release\n    cargo xtask test\n")
            .is_empty()
    );
    let late = format!(
        "# Relight\n    cargo run --release\n{}    cargo xtask test\n",
        "\n".repeat(40)
    );
    assert_eq!(text::check_readme_screen(&late).len(), 1);
}

#[test]
fn a_dependency_against_the_table_is_found() {
    let edge = |from: &str, to: &str, only_for_tests| Edge {
        from: from.to_owned(),
        to: to.to_owned(),
        only_for_tests,
    };
    let check = |edge: Edge| messages(&check_edges(&[], &[edge]));
    assert_eq!(
        check(edge("server", "engine", false)),
        ["crates/server/Cargo.toml: server may not depend on engine"]
    );
    assert_eq!(check(edge("kernels", "gguf", true)).len(), 1);
    assert_eq!(check(edge("xtask", "protocol", false)).len(), 1);
    assert_eq!(check(edge("cli", "tiny-model", false)).len(), 1);
    assert!(check(edge("cli", "tiny-model", true)).is_empty());
    assert!(check(edge("engine", "model", false)).is_empty());
    assert_eq!(check_edges(&["novel".to_owned()], &[]).len(), 1);
}

#[test]
fn a_count_above_its_ratchet_is_found() {
    let mut counts = Counts::default();
    let blocks = "unsafe { work() }; ".repeat(2000);
    let source = Source::parse(
        "crates/kernels/src/a.rs",
        &format!("fn f() {{ {blocks} }}"),
        &TestFiles::default(),
    )
    .unwrap();
    counts.add(&source);
    assert_eq!(counts.check().len(), 1);
}

#[test]
fn a_module_declared_for_tests_counts_as_one_wherever_it_lies() {
    let mut tests = TestFiles::default();
    tests.add(
        "crates/server/src/core.rs",
        "//! Docs.\n#[cfg(test)]\nmod bench;\nmod live;\n",
    );
    tests.add(
        "crates/server/src/lib.rs",
        "//! Docs.\n#[cfg(test)]\nmod fixture;\n",
    );
    let findings = |file: &str| {
        let source = Source::parse(file, "fn f() {\n    assert!(true);\n}\n", &tests).unwrap();
        source.check().len()
    };
    assert_eq!(findings("crates/server/src/core/bench.rs"), 0);
    assert_eq!(findings("crates/server/src/core/bench/gate.rs"), 0);
    assert_eq!(findings("crates/server/src/fixture.rs"), 0);
    assert_eq!(findings("crates/server/src/core/live.rs"), 2);
    assert_eq!(findings("crates/server/src/bench.rs"), 2);
}

#[test]
fn a_link_to_nothing_is_found() {
    let exists = |target: &str| target == "docs/api.md";
    let check =
        |file: &str, content: &str| messages(&documents::check_links(file, content, exists));
    assert!(
        check(
            "README.md",
            "[a](docs/api.md#errors) [b](#top) [c](https://example.org/x)"
        )
        .is_empty()
    );
    assert!(check("docs/faults.md", "see [a](../docs/api.md) and [b](api.md)").is_empty());
    assert_eq!(
        check("docs/faults.md", "\nsee [a](docs/api.md)"),
        ["docs/faults.md:2: the link to docs/api.md leads nowhere"]
    );
}

#[test]
fn a_promise_whose_test_is_missing_is_found() {
    let functions = documents::function_names("#[test]\nfn a_killed_engine_is_replaced() {\n");
    let check =
        |content: &str| documents::check_promises("SPECIFICATION.md", content, &functions).len();
    assert_eq!(
        check("| resume | `cli::it::a_killed_engine_is_replaced`, `kv_pages` |"),
        0
    );
    assert_eq!(check("| resume | `a_killed_engine_is_never_replaced` |"), 1);
}

#[test]
fn a_path_that_is_not_there_is_found() {
    let exists = |path: &str| path == "crates/kernels/src";
    let check = |content: &str| documents::check_paths("ARCHITECTURE.md", content, exists).len();
    assert_eq!(
        check("`crates/kernels/src`, `crates/NAME`, `cargo test`"),
        0
    );
    assert_eq!(
        check("`crates/kernels/src/gone.rs` and `crates/kernels/src`"),
        1
    );
}
