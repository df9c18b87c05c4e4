//! Rules about Rust sources, on the parsed file: sizes, module docs, unsafe, assertions.

use anyhow::{Context, Result};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;

pub(super) const FUNCTION_LINES_MAX: usize = 70;
pub(super) const FILE_LINES_MAX: usize = 500;

/// Files that may be longer, each a flat table: splitting it would make it no simpler.
const FLAT_TABLES: &[(&str, &str)] = &[];

/// Where unsafe code may stand: arithmetic on vectors, and the mapping of shared memory.
const UNSAFE_PLACES: &[&str] = &[
    "crates/kernels/",
    "crates/engine/src/arena",
    // The limits of the machine are measured with its own instructions.
    "crates/microbench/src/roofline",
];

/// The process that must not die: its code degrades where other code would assert.
const FRONT: &[&str] = &["crates/supervisor/", "crates/server/"];

/// One Rust file, parsed, with the numbers that the rules and ratchets need.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: String,
    pub(super) code_lines: usize,
    pub(super) unsafe_count: usize,
    pub(super) expect_count: usize,
    pub(super) is_test: bool,
    has_module_docs: bool,
    findings: Vec<Finding>,
}

/// Files that are compiled for tests only.
#[derive(Debug, Default)]
pub(super) struct TestFiles {
    /// Modules declared under `#[cfg(test)]`, as paths without `.rs`.
    modules: Vec<String>,
}

impl TestFiles {
    /// Notes the test modules that `file` declares.
    pub(super) fn add(&mut self, file: &str, content: &str) {
        let folder = module_folder(file);
        let lines: Vec<&str> = content.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let [attribute, declaration] = pair else {
                continue;
            };
            let name = declaration
                .trim_start_matches("pub(crate) ")
                .strip_prefix("mod ");
            let name = name.and_then(|rest| rest.strip_suffix(';'));
            if let (&"#[cfg(test)]", Some(name)) = (attribute, name) {
                self.modules.push(format!("{folder}/{name}"));
            }
        }
    }

    fn contains(&self, file: &str) -> bool {
        let module = file.strip_suffix(".rs").unwrap_or(file);
        let declared = self.modules.iter().any(|test| {
            module
                .strip_prefix(test.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        declared || is_test_file(file)
    }
}

/// Where the files of the modules lie that `file` declares.
fn module_folder(file: &str) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", name.strip_suffix(".rs").unwrap_or(name)),
    }
}

impl Source {
    pub(super) fn parse(file: &str, content: &str, tests: &TestFiles) -> Result<Self> {
        let tree = syn::parse_file(content).with_context(|| format!("cannot parse {file}"))?;
        let is_code: Vec<bool> = content.lines().map(is_code_line).collect();
        let mut visitor = Visitor {
            file,
            is_code: &is_code,
            in_tests: tests.contains(file),
            in_const: false,
            unsafe_count: 0,
            expect_count: 0,
            findings: Vec::new(),
        };
        visitor.visit_file(&tree);
        Ok(Self {
            file: file.to_owned(),
            code_lines: is_code.iter().filter(|code| **code).count(),
            unsafe_count: visitor.unsafe_count,
            expect_count: visitor.expect_count,
            is_test: tests.contains(file),
            has_module_docs: tree
                .attrs
                .iter()
                .any(|attribute| attribute.path().is_ident("doc")),
            findings: visitor.findings,
        })
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        let mut findings = self.findings.clone();
        if !self.is_test && !self.has_module_docs {
            findings.push(Finding::new(
                &self.file,
                1,
                "a module opens with `//!` docs",
            ));
        }
        let is_table = FLAT_TABLES.iter().any(|(file, _)| *file == self.file);
        if !self.is_test && !is_table && self.code_lines > FILE_LINES_MAX {
            let message = format!(
                "{} lines of code; at most {FILE_LINES_MAX}",
                self.code_lines
            );
            findings.push(Finding::new(&self.file, 0, message));
        }
        findings
    }
}

fn is_code_line(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn is_test_file(file: &str) -> bool {
    file.ends_with("/tests.rs")
        || file.contains("/tests/")
        || file.contains("/benches/")
        || file.starts_with("fuzz/")
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

struct Visitor<'a> {
    file: &'a str,
    is_code: &'a [bool],
    in_tests: bool,
    /// Inside a constant, where an assertion fails the build instead of the process.
    in_const: bool,
    unsafe_count: usize,
    expect_count: usize,
    findings: Vec<Finding>,
}

impl Visitor<'_> {
    fn find(&mut self, span: Span, message: impl Into<String>) {
        self.findings
            .push(Finding::new(self.file, span.start().line, message));
    }

    fn check_function(&mut self, name: &syn::Ident, body: &syn::Block) {
        let span = body.span();
        // The lines strictly between the braces, as clippy counts them.
        let inside = self
            .is_code
            .get(span.start().line..span.end().line.saturating_sub(1));
        let lines = inside.map_or(0, |lines| lines.iter().filter(|code| **code).count());
        if lines > FUNCTION_LINES_MAX {
            self.find(
                name.span(),
                format!("`{name}` has {lines} lines; at most {FUNCTION_LINES_MAX}"),
            );
        }
    }

    fn note_unsafe(&mut self, span: Span) {
        self.unsafe_count += 1;
        if !UNSAFE_PLACES
            .iter()
            .any(|place| self.file.starts_with(place))
        {
            self.find(
                span,
                "unsafe code stands in `kernels`, the engine's arena and the roofline only",
            );
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let outside = self.in_tests;
        self.in_tests |= is_test_only(&module.attrs);
        visit::visit_item_mod(self, module);
        self.in_tests = outside;
    }

    fn visit_item_const(&mut self, constant: &'ast syn::ItemConst) {
        let outside = std::mem::replace(&mut self.in_const, true);
        visit::visit_item_const(self, constant);
        self.in_const = outside;
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check_function(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check_function(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if matches!(signature.safety, syn::Safety::Unsafe(_)) {
            self.note_unsafe(signature.ident.span());
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(keyword) = item.unsafety {
            self.note_unsafe(keyword.span());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.note_unsafe(block.unsafe_token.span());
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("expect") {
            self.expect_count += 1;
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call
            .path
            .segments
            .last()
            .map(|segment| segment.ident.to_string());
        let name = name.unwrap_or_default();
        let asserts = name.starts_with("assert") || name.starts_with("debug_assert");
        let in_front = FRONT.iter().any(|place| self.file.starts_with(place));
        if asserts && in_front && !self.in_tests && !self.in_const {
            self.find(
                call.path.span(),
                format!("`{name}!` in the process that must not die"),
            );
        }
        if name == "dbg" {
            self.find(call.path.span(), "`dbg!` left behind");
        }
        visit::visit_macro(self, call);
    }
}
