//! What happened in a run: always as a hash, so that two runs can be compared, and as text
//! when somebody wants to read it.

use std::fmt::{self, Write as _};

use crate::random::mix;

/// A growing record of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    /// `None` unless the run is to be read.
    text: Option<String>,
}

impl Trace {
    pub(crate) fn new(keeps_text: bool) -> Self {
        Self {
            hash: 0,
            text: keeps_text.then(String::new),
        }
    }

    /// Notes one line.
    pub(crate) fn note(&mut self, now_ms: u64, line: fmt::Arguments<'_>) {
        self.hash = mix(self.hash ^ now_ms);
        let mut hasher = Hashing(&mut self.hash);
        // Hashing does not fail, and neither do strings.
        hasher.write_fmt(line).unwrap_or_default();
        if let Some(text) = &mut self.text {
            writeln!(text, "{now_ms:>7} {line}").unwrap_or_default();
        }
    }

    pub(crate) fn finish(self) -> (u64, Option<String>) {
        (self.hash, self.text)
    }
}

struct Hashing<'a>(&'a mut u64);

impl fmt::Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for word in text.as_bytes().chunks(8) {
            let word = word
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            *self.0 = mix(*self.0 ^ word);
        }
        Ok(())
    }
}
