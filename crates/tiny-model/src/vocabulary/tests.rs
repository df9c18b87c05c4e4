//! Vocabularies are consistent: every merge forms a token from two tokens, and every byte
//! can be written.

use std::collections::HashSet;

use super::{BYTE, Vocabulary, letter, words};
use crate::Architecture;

#[test]
fn merges_form_tokens_from_tokens_in_both_byte_level_families() {
    for architecture in [Architecture::Llama, Architecture::Qwen2] {
        let vocabulary = Vocabulary::new(architecture, 640);
        assert_eq!(vocabulary.tokens.len(), 640);
        assert_eq!(vocabulary.types.len(), 640);
        let tokens: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
        assert_eq!(tokens.len(), 640, "no token twice");
        let merges = vocabulary.merges.unwrap();
        assert!(merges.len() > 300);
        for merge in merges {
            let (left, right) = merge.split_once(' ').unwrap();
            let whole = format!("{left}{right}");
            assert!(tokens.contains(left) && tokens.contains(right), "{merge}");
            assert!(tokens.contains(whole.as_str()), "{merge}");
        }
        for byte in 0..=u8::MAX {
            assert!(tokens.contains(letter(byte).to_string().as_str()), "{byte}");
        }
    }
}

#[test]
fn sentence_pieces_fall_back_to_bytes_and_score_by_rank() {
    let vocabulary = Vocabulary::new(Architecture::Gemma3, 768);
    let tokens: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
    assert_eq!(tokens.len(), 768, "no token twice");
    let bytes = vocabulary
        .types
        .iter()
        .filter(|kind| **kind == BYTE)
        .count();
    assert_eq!(bytes, 256);
    assert!(tokens.contains("\u{2581}the"));
    let scores = vocabulary.scores.unwrap();
    let score = |token: &str| {
        let index = vocabulary.tokens.iter().position(|known| known == token);
        scores[index.unwrap()]
    };
    assert!(
        score("\u{2581}the") > score("h"),
        "merged pieces come before characters"
    );
}

#[test]
fn text_is_cut_as_the_pre_tokenizers_cut_it() {
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(words(text).collect::<String>(), text);
    };
    check(
        "a lamp, 42 men",
        &["a", " lamp", ",", " ", "4", "2", " men"],
    );
    check("if  x {\n    y", &["if", " ", " x", " {", "\n   ", " y"]);
}

#[test]
fn padding_and_markers_are_special_and_text_is_not() {
    let vocabulary = Vocabulary::new(Architecture::Llama, 5000);
    assert!(vocabulary.is_special(0));
    assert!(!vocabulary.is_special(3));
    assert!(vocabulary.is_special(4999));
}
