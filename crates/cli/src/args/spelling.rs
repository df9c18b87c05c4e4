//! Spellings that other servers have taught people and clap does not know: short flags of
//! several letters, and a command line without a command.

use std::ffi::OsString;

/// Short flags of several letters and the long ones that they stand for. To clap `-np 4`
/// would be `-n p` and a stray 4.
const SHORT_FLAGS: [(&str, &str); 8] = [
    ("-hf", "--hf-repo"),
    ("-np", "--parallel"),
    ("-ngl", "--n-gpu-layers"),
    ("-tb", "--threads-batch"),
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-fa", "--flash-attn"),
];

/// First words that are no model and no flag of `serve`.
const ABOUT_PROGRAM: [&str; 4] = ["-h", "--help", "-V", "--version"];

/// The words as clap is to see them, the program's name included.
pub(super) fn normalize(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_else(|| "relight".into());
    let mut normal = vec![program];
    let mut words = words.peekable();
    if means_serve(words.peek()) {
        normal.push("serve".into());
    }
    let mut literal = false;
    for word in words {
        literal = literal || word == "--";
        let long = SHORT_FLAGS.iter().find(|(short, _)| word == *short);
        match long.filter(|_| !literal) {
            Some((_, long)) => normal.push(long.into()),
            None => normal.push(word),
        }
    }
    normal
}

/// Whether the first word begins a `serve` whose name was left out.
fn means_serve(first: Option<&OsString>) -> bool {
    let Some(first) = first.map(|word| word.to_string_lossy()) else {
        return true;
    };
    let is_flag = first.starts_with('-') && !ABOUT_PROGRAM.contains(&first.as_ref());
    is_flag || first.ends_with(".gguf") || first.starts_with("hf:") || first.starts_with("pypi:")
}
