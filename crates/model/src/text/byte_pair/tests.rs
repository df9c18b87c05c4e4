#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of these tests are small"
)]

use super::{BytePairEncoder, Merges};
use crate::text::random::Random;
use crate::text::vocabulary::{TokenKind, Vocabulary, VocabularyBuilder};

/// Bytes `a` to `d`, then tokens that random merges of known tokens make.
fn random_merges(random: &mut Random, count: usize) -> (Vocabulary, Vec<[u32; 3]>) {
    let mut tokens: Vec<Vec<u8>> = b"abcd".iter().map(|&byte| vec![byte]).collect();
    let mut merges: Vec<[u32; 3]> = Vec::new();
    while merges.len() < count {
        let left = random.below(tokens.len());
        let right = random.below(tokens.len());
        let joined = [tokens[left].as_slice(), tokens[right].as_slice()].concat();
        let pair = [left as u32, right as u32];
        if joined.len() > 9 || merges.iter().any(|&[l, r, _]| [l, r] == pair) {
            continue;
        }
        let known = tokens.iter().position(|token| *token == joined);
        let merged = known.unwrap_or_else(|| {
            tokens.push(joined);
            tokens.len() - 1
        });
        merges.push([pair[0], pair[1], merged as u32]);
    }
    let mut builder = VocabularyBuilder::with_capacity(tokens.len());
    for token in &tokens {
        builder.push(token, TokenKind::Normal, true).unwrap();
    }
    (builder.build().unwrap(), merges)
}

/// The definition: look over all pairs again after each merge.
fn naive(merges: &[[u32; 3]], mut tokens: Vec<u32>) -> Vec<u32> {
    loop {
        let best = (1..tokens.len())
            .filter_map(|right| {
                let pair = [tokens[right - 1], tokens[right]];
                let rank = merges.iter().position(|&[l, r, _]| [l, r] == pair)?;
                Some((rank, right))
            })
            .min();
        let Some((rank, right)) = best else {
            return tokens;
        };
        tokens[right - 1] = merges[rank][2];
        tokens.remove(right);
    }
}

#[test]
fn the_queue_merges_in_the_order_of_the_definition() {
    let mut random = Random(2);
    for round in 0..60 {
        let count = 3 + random.below(40);
        let (vocabulary, list) = random_merges(&mut random, count);
        let merges = Merges::new(&vocabulary, list.clone());
        let mut encoder = BytePairEncoder::default();
        for _ in 0..40 {
            let piece = random.string(&["a", "b", "c", "d", "ab", "aaaa"], 30);
            let mut tokens = Vec::new();
            encoder
                .encode(&merges, piece.as_bytes(), &mut tokens)
                .unwrap();
            let bytes = piece.bytes().map(|byte| u32::from(byte - b'a')).collect();
            assert_eq!(tokens, naive(&list, bytes), "round {round}, {piece:?}");
        }
    }
}

#[test]
fn a_megabyte_in_one_piece_is_merged() {
    let (vocabulary, list) = random_merges(&mut Random(3), 40);
    let merges = Merges::new(&vocabulary, list);
    let mut tokens = Vec::new();
    let piece = vec![b'a'; 1 << 20];
    BytePairEncoder::default()
        .encode(&merges, &piece, &mut tokens)
        .unwrap();
    let bytes: usize = tokens
        .iter()
        .map(|&token| vocabulary.bytes(token).unwrap().len())
        .sum();
    assert_eq!(bytes, piece.len());
}

#[test]
fn a_byte_without_a_token_is_skipped_and_not_merged_across() {
    let (vocabulary, _) = random_merges(&mut Random(4), 3);
    let merges = Merges::new(&vocabulary, vec![[0, 1, 4]]);
    let mut tokens = Vec::new();
    BytePairEncoder::default()
        .encode(&merges, b"aba\xffb\xff", &mut tokens)
        .unwrap();
    assert_eq!(tokens, [4, 0, 1]);
}
