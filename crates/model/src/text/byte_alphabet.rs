//! The printable stand-ins for bytes in which byte-level vocabularies are written.
//!
//! GPT-2's alphabet: the printable characters of Latin-1 stand for themselves, the other 68
//! bytes are U+0100, U+0101, ... in ascending order.

/// One past the last character of the alphabet.
const END: usize = 0x100 + 68;

/// Characters to bytes.
#[derive(Debug)]
pub(super) struct ByteAlphabet {
    bytes: [Option<u8>; END],
}

impl ByteAlphabet {
    pub(super) fn new() -> Self {
        let mut bytes = [None; END];
        let mut next = 0x100;
        for byte in 0..=u8::MAX {
            let stands_for_itself = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let character = if stands_for_itself {
                usize::from(byte)
            } else {
                next += 1;
                next - 1
            };
            if let Some(entry) = bytes.get_mut(character) {
                *entry = Some(byte);
            }
        }
        Self { bytes }
    }

    /// Replaces `target` with the bytes that `text` stands for; `false` if a character is
    /// not of the alphabet.
    pub(super) fn decode(&self, text: &str, target: &mut Vec<u8>) -> bool {
        target.clear();
        for character in text.chars() {
            match self.bytes.get(character as usize) {
                Some(Some(byte)) => target.push(*byte),
                _ => return false,
            }
        }
        true
    }
}
