use std::collections::HashMap;

use super::{TokenKind, VocabularyBuilder};
use crate::text::TextError;
use crate::text::random::Random;

#[test]
fn lookups_agree_with_a_map() {
    let mut random = Random(1);
    let syllables = ["a", "b", "ab", "é", "日", "\0", " ", "xyzxyzxyz"];
    let mut map: HashMap<String, u32> = HashMap::new();
    let mut builder = VocabularyBuilder::with_capacity(0);
    let mut texts = Vec::new();
    for id in 0..5000 {
        let text = random.string(&syllables, 8);
        let indexed = random.below(4) > 0;
        builder
            .push(text.as_bytes(), TokenKind::Normal, indexed)
            .unwrap();
        if indexed && !text.is_empty() {
            map.insert(text.clone(), id);
        }
        texts.push(text);
    }
    let vocabulary = builder.build().unwrap();
    assert_eq!(vocabulary.len(), 5000);
    for (id, text) in (0..).zip(&texts) {
        assert_eq!(vocabulary.bytes(id), Some(text.as_bytes()));
    }
    for _ in 0..20_000 {
        let text = random.string(&syllables, 8);
        assert_eq!(
            vocabulary.find(text.as_bytes()),
            map.get(&text).copied(),
            "{text:?}"
        );
    }
    assert_eq!(
        vocabulary.longest(),
        texts.iter().map(String::len).max().unwrap()
    );
}

#[test]
fn ids_outside_the_vocabulary_have_no_bytes_and_no_kind() {
    let mut builder = VocabularyBuilder::with_capacity(1);
    builder.push(b"x", TokenKind::Control, true).unwrap();
    let vocabulary = builder.build().unwrap();
    assert_eq!(vocabulary.kind(0), Some(TokenKind::Control));
    assert_eq!((vocabulary.bytes(1), vocabulary.kind(1)), (None, None));
    assert_eq!(vocabulary.bytes(u32::MAX), None);
}

#[test]
fn an_empty_vocabulary_is_refused() {
    let empty = VocabularyBuilder::with_capacity(0).build();
    assert_eq!(empty.unwrap_err(), TextError::VocabularyEmpty);
}
