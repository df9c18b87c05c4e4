use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, SplitDelimiterBehavior,
};

use super::table::{SCHEMES, Scheme, Stage};
use super::{PreTokenizer, known_names};
use crate::text::TextError;
use crate::text::random::Random;

/// What random texts are made of: every kind of character, and what the rules single out.
/// Not U+017F, which folds to `s` only where case is Unicode's.
const PARTS: [&str; 72] = [
    "a", "b", "Z", "Q", "s", "t", "d", "re", "ve", "ll", "LL", "M", "'", "'", "'s", "'S", "é", "Ü",
    "ß", "ж", "Ж", "λ", "Σ", "ǅ", "ʰ", "ª", "日", "本", "龥", "の", "カ", "ー", "한", "가", "ㄱ",
    "ا", "ש", "क", "ि", "\u{301}", "\u{308}", "\u{200d}", "0", "1", "9", "٣", "½", "Ⅻ", "二", " ",
    " ", " ", "  ", "\t", "\n", "\n", "\r\n", "\u{a0}", "\u{3000}", "\u{85}", "!", "/", "//", ".",
    ",", "…", "。", "_", "`", "$", "<=", "🚀",
];

/// The published expressions in another library's backtracking engine, stage by stage.
fn published(scheme: &Scheme) -> Vec<Split> {
    let split = |regex: &str| {
        let pattern = SplitPattern::Regex(regex.to_owned());
        Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap()
    };
    let stages = scheme.stages.iter().map(|stage| match stage {
        Stage::Rules { regex, .. } => split(regex),
        Stage::TrailingSpace => split(r"\s+$"),
    });
    stages.collect()
}

fn reference(stages: &[Split], text: &str) -> Vec<String> {
    let mut string = PreTokenizedString::from(text);
    for stage in stages {
        stage.pre_tokenize(&mut string).unwrap();
    }
    string
        .get_splits(OffsetReferential::Original, OffsetType::Byte)
        .into_iter()
        .map(|(piece, _, _)| piece.to_owned())
        .filter(|piece| !piece.is_empty())
        .collect()
}

fn pieces(pre_tokenizer: &PreTokenizer, text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    pre_tokenizer
        .for_each_piece(text, &mut |piece| {
            pieces.push(piece.to_owned());
            Ok::<(), TextError>(())
        })
        .unwrap();
    pieces
}

#[test]
fn the_rules_cut_as_the_published_expressions_do() {
    let mut random = Random(9);
    let texts: Vec<String> = (0..400).map(|_| random.string(&PARTS, 24)).collect();
    for scheme in SCHEMES {
        let pre_tokenizer = PreTokenizer::named(scheme.names[0]).unwrap();
        let published = published(scheme);
        for text in &texts {
            assert_eq!(
                pieces(&pre_tokenizer, text),
                reference(&published, text),
                "{} on {text:?}",
                scheme.names[0]
            );
        }
    }
}

#[test]
fn a_long_run_of_anything_is_cut() {
    for scheme in SCHEMES {
        let pre_tokenizer = PreTokenizer::named(scheme.names[0]).unwrap();
        for unit in [
            "a", "A", "日", " ", "\n", ".", "1", "\u{301}", "Aa", " .", " \n", "'",
        ] {
            let text = format!("{}x", unit.repeat((1 << 18) / unit.len()));
            let mut bytes = 0;
            pre_tokenizer
                .for_each_piece(&text, &mut |piece| {
                    bytes += piece.len();
                    Ok::<(), TextError>(())
                })
                .unwrap();
            assert_eq!(bytes, text.len());
        }
    }
}

#[test]
fn an_unknown_name_is_refused_with_all_known_ones() {
    let error = PreTokenizer::named("qwen3000").unwrap_err();
    assert_eq!(
        error,
        TextError::UnknownPreTokenizer {
            found: "qwen3000".to_owned(),
            known: known_names(),
        }
    );
    assert!(known_names().contains("llama-bpe") && known_names().contains("smollm"));
}

#[test]
fn every_name_stands_once_in_the_table() {
    let names = known_names();
    let mut list: Vec<&str> = names.split(", ").collect();
    let count = list.len();
    list.dedup();
    assert_eq!(list.len(), count);
}
