use super::{Pieces, SentencePieceEncoder, ordered_bits};
use crate::text::TextError;
use crate::text::random::Random;
use crate::text::vocabulary::{TokenKind, Vocabulary, VocabularyBuilder};

const LETTERS: [&str; 6] = ["a", "b", "é", "日", " ", "x"];

/// All byte tokens, four of the letters, and random longer tokens with random scores.
fn random_vocabulary(random: &mut Random) -> (Vocabulary, Pieces, Vec<f32>) {
    let mut builder = VocabularyBuilder::with_capacity(0);
    let mut scores = Vec::new();
    for byte in 0..=u8::MAX {
        builder.push(&[byte], TokenKind::Byte, false).unwrap();
        scores.push(0.0);
    }
    let mut texts: Vec<String> = LETTERS[..4].iter().map(|&text| text.to_owned()).collect();
    texts.extend((0..60).map(|_| random.string(&LETTERS, 5)));
    texts.sort();
    texts.dedup();
    for text in &texts {
        builder
            .push(text.as_bytes(), TokenKind::Normal, true)
            .unwrap();
        scores.push(-(random.below(12) as f32));
    }
    let vocabulary = builder.build().unwrap();
    let pieces = Pieces::new(&vocabulary, scores.iter().copied()).unwrap();
    (vocabulary, pieces, scores)
}

/// The definition, over the whole text at once.
fn naive(vocabulary: &Vocabulary, scores: &[f32], text: &str) -> Vec<u32> {
    let mut symbols: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for right in 1..symbols.len() {
            let joined = [symbols[right - 1].as_str(), &symbols[right]].concat();
            if let Some(token) = vocabulary.find(joined.as_bytes()) {
                let score = scores[token as usize];
                if best.is_none_or(|(highest, _)| score > highest) {
                    best = Some((score, right));
                }
            }
        }
        let Some((_, right)) = best else { break };
        let removed = symbols.remove(right);
        symbols[right - 1].push_str(&removed);
    }
    let ids = symbols.iter().flat_map(|symbol| {
        let found = vocabulary.find(symbol.as_bytes());
        let spelled = if symbol == " " { "\u{2581}" } else { symbol };
        match found {
            Some(token) => vec![token],
            None => spelled.bytes().map(u32::from).collect(),
        }
    });
    ids.collect()
}

#[test]
fn pieces_merge_as_the_whole_text_would() {
    let mut random = Random(5);
    for round in 0..60 {
        let (vocabulary, pieces, scores) = random_vocabulary(&mut random);
        let mut encoder = SentencePieceEncoder::default();
        for _ in 0..40 {
            let text = random.string(&LETTERS, 24);
            let mut tokens = Vec::new();
            encoder
                .encode((&vocabulary, &pieces), false, &text, &mut tokens)
                .unwrap();
            let expected = naive(&vocabulary, &scores, &text);
            assert_eq!(tokens, expected, "round {round}, {text:?}");
        }
    }
}

#[test]
fn the_space_mark_is_a_space_and_a_prefix_is_one_more() {
    let (vocabulary, pieces, _) = random_vocabulary(&mut Random(6));
    let encode = |prefix, text| {
        let mut tokens = Vec::new();
        SentencePieceEncoder::default()
            .encode((&vocabulary, &pieces), prefix, text, &mut tokens)
            .unwrap();
        tokens
    };
    assert_eq!(encode(false, "a\u{2581}b\u{2581}"), encode(false, "a b "));
    assert_eq!(encode(true, "ab"), encode(false, " ab"));
    assert!(encode(false, "").is_empty());
}

#[test]
fn a_megabyte_of_one_letter_is_merged() {
    let mut builder = VocabularyBuilder::with_capacity(0);
    let mut text = String::new();
    for _ in 0..20 {
        text.push('a');
        builder
            .push(text.as_bytes(), TokenKind::Normal, true)
            .unwrap();
    }
    let vocabulary = builder.build().unwrap();
    let scores = (0..20u8).map(|id| -f32::from(id));
    let pieces = Pieces::new(&vocabulary, scores).unwrap();
    let mut tokens = Vec::new();
    SentencePieceEncoder::default()
        .encode(
            (&vocabulary, &pieces),
            false,
            &"a".repeat(1 << 20),
            &mut tokens,
        )
        .unwrap();
    let bytes: usize = tokens.iter().map(|&token| token as usize + 1).sum();
    assert_eq!(bytes, 1 << 20);
}

#[test]
fn bad_scores_are_refused() {
    let mut builder = VocabularyBuilder::with_capacity(0);
    builder.push(b"a", TokenKind::Normal, true).unwrap();
    builder.push(b"b", TokenKind::Normal, true).unwrap();
    let vocabulary = builder.build().unwrap();
    let error = |scores: &[f32]| Pieces::new(&vocabulary, scores.iter().copied()).unwrap_err();
    assert_eq!(
        error(&[0.0, f32::NAN]),
        TextError::ScoreNotFinite { token: 1 }
    );
    assert_eq!(
        error(&[0.0]),
        TextError::LengthMismatch {
            key: "tokenizer.ggml.scores",
            found: 1,
            tokens: 2
        }
    );
}

#[test]
fn ordered_bits_keep_the_order_of_scores() {
    let scores = [-1e30, -2.5, -1.0, -1e-30, 0.0, 1e-30, 1.0, 7.0, 1e30];
    for pair in scores.windows(2) {
        assert!(ordered_bits(pair[0]) < ordered_bits(pair[1]), "{pair:?}");
    }
    assert_eq!(ordered_bits(0.0), ordered_bits(-0.0));
}
