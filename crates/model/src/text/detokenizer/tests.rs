use proptest::prelude::*;

use super::Detokenizer;
use crate::text::Tokenizer;
use crate::text::tokenizer::tests::{byte_level_file, sentence_piece_file, tokenizer};

/// Bytes of the text that `tokens` stand for.
fn bytes(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<u8> {
    tokens
        .iter()
        .filter(|&&token| !tokenizer.is_control(token))
        .flat_map(|&token| tokenizer.token_bytes(token).unwrap_or_default().to_vec())
        .collect()
}

fn check(tokenizer: &Tokenizer, tokens: &[u32]) {
    let mut detokenizer = Detokenizer::continuation(tokenizer);
    let mut text = String::new();
    let mut pushed = Vec::new();
    for &token in tokens {
        text.push_str(&detokenizer.push(token));
        pushed.push(token);
        // What has been sent never has to be taken back.
        let whole = bytes(tokenizer, &pushed);
        assert!(String::from_utf8_lossy(&whole).starts_with(&text) || whole.is_empty());
    }
    text.push_str(&detokenizer.finish());
    assert_eq!(text, String::from_utf8_lossy(&bytes(tokenizer, tokens)));
}

proptest! {
    #[test]
    fn the_pieces_are_the_whole(tokens in prop::collection::vec(0u32..320, 0..40)) {
        check(&tokenizer(&byte_level_file()), &tokens);
        check(&tokenizer(&sentence_piece_file()), &tokens);
    }

    #[test]
    fn good_text_comes_back_whole(text in any::<String>()) {
        let tokenizer = tokenizer(&byte_level_file());
        let mut detokenizer = Detokenizer::continuation(&tokenizer);
        let mut back = String::new();
        for byte in text.bytes() {
            let token = (0..256).find(|&token| tokenizer.token_bytes(token) == Some(&[byte]));
            let piece = detokenizer.push(token.unwrap());
            let replaced = piece.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!replaced || text.contains(char::REPLACEMENT_CHARACTER));
            back.push_str(&piece);
        }
        prop_assert_eq!(detokenizer.finish(), "");
        prop_assert_eq!(back, text);
    }
}

#[test]
fn a_character_waits_for_its_last_byte() {
    let tokenizer = tokenizer(&sentence_piece_file());
    let byte = |byte: u8| 3 + u32::from(byte);
    let mut detokenizer = Detokenizer::continuation(&tokenizer);
    let pieces: Vec<String> = [0xf0, 0x9f, 0x9a, 0x80, b'!', 0xff, 0xe6, 0x97]
        .into_iter()
        .map(|value| detokenizer.push(byte(value)))
        .collect();
    assert_eq!(pieces, ["", "", "", "🚀", "!", "\u{fffd}", "", ""]);
    assert_eq!(detokenizer.finish(), "\u{fffd}");
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn the_artificial_space_is_taken_from_documents_only() {
    let tokenizer = tokenizer(&sentence_piece_file());
    let options = crate::text::EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokens = tokenizer.encode(" a b", options).unwrap();
    let decode = |mut detokenizer: Detokenizer<'_>| -> String {
        tokens
            .iter()
            .map(|&token| detokenizer.push(token))
            .collect()
    };
    assert_eq!(decode(Detokenizer::document(&tokenizer)), " a b");
    assert_eq!(decode(Detokenizer::continuation(&tokenizer)), "  a b");
}
