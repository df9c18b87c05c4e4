//! Short flags of several letters, which hands know from llama-server and which the
//! argument parser would take for several flags of one letter.

use std::ffi::OsString;

const SHORT_FLAGS: [(&str, &str); 9] = [
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-np", "--parallel"),
    ("-ngl", "--n-gpu-layers"),
    ("-tb", "--threads-batch"),
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-fa", "--flash-attn"),
];

/// Arguments as the parser wants them: long flags, and `serve` where no command is named.
pub(crate) fn normalised(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.map(long_flag).collect();
    let names_command = arguments.get(1).is_some_and(|first| {
        let own = ["-h", "--help", "-V", "--version"]
            .iter()
            .any(|flag| first == flag);
        own || !first.as_encoded_bytes().starts_with(b"-")
    });
    if !names_command {
        let place = arguments.len().min(1);
        arguments.insert(place, OsString::from("serve"));
    }
    arguments
}

fn long_flag(argument: OsString) -> OsString {
    let long = SHORT_FLAGS.iter().find(|(short, _)| argument == *short);
    long.map_or(argument, |(_, long)| OsString::from(long))
}
