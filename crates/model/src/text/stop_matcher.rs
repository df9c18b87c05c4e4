//! Stop strings in a stream of text.

/// One stop string with the state of its Knuth-Morris-Pratt automaton.
#[derive(Debug, Clone)]
struct Stop {
    bytes: Vec<u8>,
    /// (bytes) length of the longest proper border of each prefix.
    borders: Vec<usize>,
    /// How many bytes of the stop string the text ends with.
    matched: usize,
}

impl Stop {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut stop = Self {
            borders: Vec::with_capacity(bytes.len()),
            bytes: bytes.clone(),
            matched: 0,
        };
        // The border of a prefix is what the automaton of the stop string itself has matched.
        stop.borders.push(0);
        for &byte in bytes.iter().skip(1) {
            stop.advance(byte);
            stop.borders.push(stop.matched);
        }
        stop.matched = 0;
        stop
    }

    fn advance(&mut self, byte: u8) {
        while self.bytes.get(self.matched) != Some(&byte) {
            let Some(before) = self.matched.checked_sub(1) else {
                return;
            };
            self.matched = self.borders.get(before).copied().unwrap_or_default();
        }
        self.matched += 1;
    }
}

/// What may be sent, and whether a stop string ended the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    pub text: String,
    /// Index of the stop string that was found. Text after it is dropped.
    pub stop: Option<usize>,
}

/// Finds the first stop string to be completed and withholds text that may become one. Of
/// several completed by the same byte, the longest counts. The outcome depends on the text
/// alone, not on how it was cut.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    include_stop: bool,
    /// The longest end of the text that a stop string begins with.
    withheld: String,
}

impl StopMatcher {
    /// Empty stop strings are ignored. With `include_stop` the one that was found is sent.
    pub fn new<'a>(stops: impl IntoIterator<Item = &'a str>, include_stop: bool) -> Self {
        Self {
            stops: stops.into_iter().map(Stop::new).collect(),
            include_stop,
            withheld: String::new(),
        }
    }

    /// Adds text and takes what is certain. Not to be called after a stop was found.
    pub fn push(&mut self, text: &str) -> Released {
        let mut all = std::mem::take(&mut self.withheld);
        let seen = all.len();
        all.push_str(text);
        for (offset, byte) in text.bytes().enumerate() {
            if let Some((stop, length)) = self.advance(byte) {
                let end = seen + offset + 1;
                all.truncate(if self.include_stop { end } else { end - length });
                return Released {
                    text: all,
                    stop: Some(stop),
                };
            }
        }
        let open = self.stops.iter().map(|stop| stop.matched).max();
        self.withheld = all.split_off(all.len() - open.unwrap_or_default());
        Released {
            text: all,
            stop: None,
        }
    }

    /// The stop string that `byte` completes, and its length.
    fn advance(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        for (index, stop) in self.stops.iter_mut().enumerate() {
            let length = stop.bytes.len();
            if length == 0 {
                continue;
            }
            stop.advance(byte);
            if stop.matched == length && found.is_none_or(|(_, longest)| length > longest) {
                found = Some((index, length));
            }
        }
        found
    }

    /// Text that is withheld now.
    #[must_use]
    pub fn withheld(&self) -> &str {
        &self.withheld
    }

    /// The end of the text: what was withheld did not become a stop string.
    pub fn finish(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        std::mem::take(&mut self.withheld)
    }
}

#[cfg(test)]
mod tests;
