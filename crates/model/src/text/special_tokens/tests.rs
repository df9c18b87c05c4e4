#![expect(clippy::string_slice, reason = "a wrong boundary fails the test")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of these tests are small"
)]

use super::{Found, SpecialTokens};
use crate::text::random::Random;
use crate::text::vocabulary::{TokenKind, Vocabulary, VocabularyBuilder};

fn vocabulary(tokens: &[(&str, TokenKind)]) -> Vocabulary {
    let mut builder = VocabularyBuilder::with_capacity(tokens.len());
    for (text, kind) in tokens {
        builder.push(text.as_bytes(), *kind, true).unwrap();
    }
    builder.build().unwrap()
}

/// The definition: for each token from the longest, cut every stretch of text that is left.
fn naive(tokens: &[(&str, TokenKind)], text: &str, parse_special: bool) -> Vec<Found> {
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(tokens[index].0.len()));
    let mut stretches = vec![(0, text.len())];
    let mut found = Vec::new();
    for index in order {
        let (name, kind) = tokens[index];
        let wanted = match kind {
            TokenKind::UserDefined => true,
            TokenKind::Control | TokenKind::Unknown => parse_special,
            _ => false,
        };
        if !wanted || name.is_empty() {
            continue;
        }
        let mut left = Vec::new();
        for (mut start, end) in stretches {
            while let Some(offset) = text[start..end].find(name) {
                left.push((start, start + offset));
                found.push(Found {
                    start: start + offset,
                    end: start + offset + name.len(),
                    token: index as u32,
                });
                start += offset + name.len();
            }
            left.push((start, end));
        }
        stretches = left;
    }
    found.sort_by_key(|found| found.start);
    found
}

#[test]
fn longer_tokens_are_cut_out_first_everywhere() {
    let mut random = Random(7);
    let kinds = [
        TokenKind::Control,
        TokenKind::UserDefined,
        TokenKind::Unknown,
        TokenKind::Normal,
    ];
    for round in 0..200 {
        let mut names: Vec<String> = (0..1 + random.below(12))
            .map(|_| random.string(&["<", ">", "a", "é", "\n"], 5))
            .collect();
        // Overlapping tokens of one length compete in no stated order.
        names.sort_by_key(String::len);
        names.dedup_by_key(|name| name.len());
        let tokens: Vec<(&str, TokenKind)> = names
            .iter()
            .map(|name| (name.as_str(), *random.pick(&kinds)))
            .collect();
        let vocabulary = vocabulary(&tokens);
        let special = SpecialTokens::new(&vocabulary);
        for _ in 0..20 {
            let text = random.string(&["<", ">", "a", "é", "\n", "b"], 30);
            for parse_special in [false, true] {
                assert_eq!(
                    special.find_all(&vocabulary, &text, parse_special),
                    naive(&tokens, &text, parse_special),
                    "round {round}: {tokens:?} in {text:?}"
                );
            }
        }
    }
}

#[test]
fn a_megabyte_of_candidates_is_searched() {
    let tokens: Vec<String> = (1..=60).map(|length| "\n".repeat(length)).collect();
    let list: Vec<(&str, TokenKind)> = tokens
        .iter()
        .map(|token| (token.as_str(), TokenKind::UserDefined))
        .collect();
    let vocabulary = vocabulary(&list);
    let special = SpecialTokens::new(&vocabulary);
    let text = "\n".repeat(1 << 20);
    let found = special.find_all(&vocabulary, &text, false);
    assert_eq!(found.len(), (1usize << 20).div_ceil(60));
}
