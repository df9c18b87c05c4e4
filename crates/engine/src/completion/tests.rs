use relight_model::sampler::SamplerSettings;

use super::*;
use crate::test_vocabulary::{FIRST_BYTE, FIRST_WORD, SIZE, language};

const A: u32 = FIRST_WORD;
const B: u32 = FIRST_WORD + 1;
const EOS: u32 = 2;

fn rules(tokens_max: u32) -> EndRules {
    EndRules {
        ending: vec![EOS],
        banned: Vec::new(),
        tokens_min: 0,
        tokens_max,
        include_stop: false,
    }
}

fn completion<'a>(
    language: &'a Language,
    rules: EndRules,
    stops: &[&str],
    settings: SamplerSettings,
) -> Completion<'a> {
    let matcher = StopMatcher::new(stops.iter().copied(), rules.include_stop);
    let parts = CompletionParts {
        sampler: Sampler::new(settings, 0),
        matcher,
        rules,
        prompt_count: 3,
    };
    Completion::new(language, parts)
}

/// Feeds tokens; returns the pieces' texts and the end.
fn feed(completion: &mut Completion<'_>, tokens: &[u32]) -> (Vec<String>, Option<End>) {
    let pieces = tokens.iter().map(|token| completion.accept(*token).text);
    (pieces.collect(), completion.end().cloned())
}

fn ended(reason: FinishReason, text_offset: u32, text: &str) -> Option<End> {
    Some(End {
        reason,
        text_offset,
        text: text.to_owned(),
    })
}

#[test]
fn an_end_token_ends_without_text() {
    let language = language();
    let mut choice = completion(&language, rules(9), &[], SamplerSettings::default());
    let (texts, end) = feed(&mut choice, &[A, B, EOS]);
    assert_eq!(texts, ["a", "b", ""]);
    assert_eq!(end, ended(FinishReason::Stop, 2, ""));
    assert_eq!(choice.token_count(), 3);
}

#[test]
fn a_stop_string_is_cut_and_what_could_have_been_one_is_sent_at_the_end() {
    let language = language();
    let settings = SamplerSettings::default;
    let mut choice = completion(&language, rules(9), &["bba"], settings());
    let (texts, end) = feed(&mut choice, &[A, B, B, A]);
    assert_eq!(texts, ["a", "", "", ""]);
    assert_eq!(end, ended(FinishReason::Stop, 1, ""));

    let mut choice = completion(&language, rules(3), &["bba"], settings());
    let (texts, end) = feed(&mut choice, &[A, B, B]);
    assert_eq!(texts, ["a", "", ""]);
    assert_eq!(end, ended(FinishReason::Length, 1, "bb"));
}

#[test]
fn an_open_character_is_replaced_at_the_end_only() {
    let language = language();
    let mut choice = completion(&language, rules(3), &[], SamplerSettings::default());
    let (texts, end) = feed(
        &mut choice,
        &[FIRST_BYTE + 0xc3, FIRST_BYTE + 0xa9, FIRST_BYTE + 0xf0],
    );
    assert_eq!(texts, ["", "é", ""]);
    assert_eq!(end, ended(FinishReason::Length, 2, "\u{fffd}"));
}

#[test]
fn nothing_stops_a_choice_before_its_least_length() {
    let language = language();
    let early = EndRules {
        tokens_min: 2,
        ..rules(9)
    };
    let mut choice = completion(&language, early, &["a"], SamplerSettings::default());
    let mut logits = vec![0.0; SIZE];
    logits[EOS as usize] = 9.0;
    logits[A as usize] = 8.0;
    for _token in 0..2 {
        let drawn = choice.draw(&mut logits.clone()).unwrap();
        assert_eq!(drawn.token, A);
        assert_eq!(choice.accept(A).text, "a");
    }
    assert_eq!(choice.end(), None);
    assert_eq!(choice.draw(&mut logits).unwrap().token, EOS);
    let (_texts, end) = feed(&mut choice, &[EOS]);
    assert_eq!(end, ended(FinishReason::Stop, 2, ""));
}

#[test]
fn a_choice_of_no_tokens_has_ended() {
    let language = language();
    let choice = completion(&language, rules(0), &[], SamplerSettings::default());
    assert_eq!(choice.end().cloned(), ended(FinishReason::Length, 0, ""));
}

#[test]
fn every_position_has_noise_of_its_own_and_history_counts() {
    let language = language();
    let random = SamplerSettings {
        temperature: 1.0,
        ..SamplerSettings::default()
    };
    let mut choice = completion(&language, rules(99), &[], random);
    let flat = vec![0.0; SIZE];
    let mut drawn = Vec::new();
    for _token in 0..8 {
        let token = choice.draw(&mut flat.clone()).unwrap().token;
        assert_eq!(choice.draw(&mut flat.clone()).unwrap().token, token);
        choice.accept(token);
        drawn.push(token);
    }
    drawn.dedup();
    assert!(drawn.len() > 4, "{drawn:?}");

    let once = SamplerSettings {
        presence_penalty: 2.0,
        ..SamplerSettings::default()
    };
    let mut choice = completion(&language, rules(99), &[], once);
    let mut logits = vec![0.0; SIZE];
    logits[A as usize] = 5.0;
    logits[B as usize] = 4.0;
    assert_eq!(choice.draw(&mut logits.clone()).unwrap().token, A);
    choice.accept(A);
    assert_eq!(choice.draw(&mut logits.clone()).unwrap().token, B);
}

#[test]
fn logits_that_are_not_finite_are_a_fault() {
    let language = language();
    let mut choice = completion(&language, rules(9), &[], SamplerSettings::default());
    let mut logits = vec![0.0; SIZE];
    logits[7] = f32::NAN;
    let fault = choice.draw(&mut logits).unwrap_err();
    assert_eq!(fault, Fault::NonFiniteLogits);
}

#[test]
fn log_probabilities_carry_the_bytes_of_their_tokens() {
    let language = language();
    let settings = SamplerSettings {
        logprobs: Some(1),
        ..SamplerSettings::default()
    };
    let mut choice = completion(&language, rules(9), &[], settings);
    let mut logits = vec![0.0; SIZE];
    logits[(FIRST_BYTE + 0xc3) as usize] = 3.0;
    let drawn = choice.draw(&mut logits).unwrap();
    assert_eq!(drawn.logprobs.len(), 2);
    assert_eq!(drawn.logprobs[0].token, TokenId(FIRST_BYTE + 0xc3));
    assert_eq!(drawn.logprobs[0].bytes, [0xc3]);
}
