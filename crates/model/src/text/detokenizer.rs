//! Token ids to text, one token at a time.

use super::tokenizer::Tokenizer;

/// Turns the tokens of one completion into text as they come. A character is held back until
/// its last byte is there; bytes that can never become a character are replaced by U+FFFD.
///
/// Its whole state follows from the tokens pushed, and the concatenation of everything it
/// returns is the lossy decoding of all bytes at once.
#[derive(Debug)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
    /// The next text starts a document, whose artificial space is not part of it.
    strip_space: bool,
}

impl<'a> Detokenizer<'a> {
    /// For tokens that go on after a prompt: a leading space is text.
    #[must_use]
    pub fn continuation(tokenizer: &'a Tokenizer) -> Self {
        Self {
            tokenizer,
            pending: Vec::new(),
            strip_space: false,
        }
    }

    /// For a whole text: the space that encoding put before it is taken away.
    #[must_use]
    pub fn document(tokenizer: &'a Tokenizer) -> Self {
        Self {
            tokenizer,
            pending: Vec::new(),
            strip_space: tokenizer.adds_space_prefix(),
        }
    }

    /// The characters that `token` completes; empty for control tokens and for ids outside
    /// the vocabulary.
    pub fn push(&mut self, token: u32) -> String {
        if self.tokenizer.is_control(token) {
            return String::new();
        }
        let mut bytes = self.tokenizer.token_bytes(token).unwrap_or_default();
        if self.strip_space && !bytes.is_empty() {
            self.strip_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut open = 0;
        let mut chunks = self.pending.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let is_last = chunks.peek().is_none();
            if is_last && may_continue(chunk.invalid()) {
                open = chunk.invalid().len();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        let complete = self.pending.len() - open;
        self.pending.drain(..complete);
        text
    }

    /// The end of the text: U+FFFD if a character was left open.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Whether more bytes can make `invalid` a character.
fn may_continue(invalid: &[u8]) -> bool {
    std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests;
