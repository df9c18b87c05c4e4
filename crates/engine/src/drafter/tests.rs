use super::*;
use crate::seeded::Seeded;

/// The tokens of `text`, a letter each.
fn tokens(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn draft(text: &str, count: usize) -> String {
    let tokens = tokens(text);
    let drafter = Drafter::new(&tokens, 1000);
    let drafts = drafter.draft(&tokens, count);
    let letters = drafts.iter().map(|(token, _)| *token);
    letters
        .map(|token| char::from_u32(token).unwrap())
        .collect()
}

#[test]
fn what_followed_the_last_tokens_before_is_drafted() {
    assert_eq!(draft("the cat sat. the c", 6), "at sat");
    assert_eq!(draft("nothing twice", 4), "");
    assert_eq!(draft("a", 4), "");
    assert_eq!(draft("", 4), "");
}

#[test]
fn the_longest_match_counts_and_then_the_newest() {
    assert_eq!(draft("1abX 2abY 3cabZ 1ab", 1), "X");
    assert_eq!(draft("1abX 2abY 3abZ ab", 1), "Z");
}

#[test]
fn what_repeats_itself_goes_on_repeating() {
    assert_eq!(draft("xabcabc", 8), "abcabcab");
    assert_eq!(draft("zaaa", 5), "aaaaa");
}

#[test]
fn one_other_token_within_a_long_match_is_taken_for_a_replaced_one() {
    let text = tokens("let alpha = beta + gamma; let alpha = b");
    let mut drafter = Drafter::new(&text, 1000);
    let mut text = text;
    text.push(u32::from(b'E'));
    drafter.observe(&text);
    let drafts = drafter.draft(&text, 3);
    let letters: Vec<u32> = drafts.iter().map(|(token, _)| *token).collect();
    assert_eq!(letters, tokens("ta "));
}

#[test]
fn guesses_that_fail_are_believed_less_and_those_that_hold_more() {
    let mut random = Seeded::new(1);
    let mut noise = vec![1, 2];
    let mut drafter = Drafter::new(&noise, 4000);
    for _token in 0..2000 {
        noise.push(u32::try_from(random.below(12)).unwrap());
        drafter.observe(&noise);
    }
    let drafts = drafter.draft(&noise, 4);
    assert!(drafts.iter().all(|(_, probability)| *probability < 0.25));
    for index in 0..200 {
        noise.push(100 + index % 10);
        drafter.observe(&noise);
    }
    let drafts = drafter.draft(&noise, 8);
    assert_eq!(drafts.len(), 8);
    let falling = drafts.iter().is_sorted_by(|left, right| left.1 >= right.1);
    assert!(falling && drafts[7].1 > 0.7, "{drafts:?}");
}

#[test]
fn growing_gives_the_same_index_as_building() {
    let mut random = Seeded::new(2);
    let mut text = Vec::new();
    let mut grown = Drafter::new(&text, 300);
    for _token in 0..300 {
        text.push(u32::try_from(random.below(6)).unwrap());
        grown.observe(&text);
        let built = Drafter::new(&text, 300);
        assert_eq!(grown.latest, built.latest);
        assert_eq!(grown.earlier, built.earlier);
    }
}
