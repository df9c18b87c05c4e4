pub(crate) mod vectors;

use relight_gguf::{Gguf, GgufError, Writer};

use super::{EncodeOptions, Tokenizer};
use crate::text::TextError;

/// Byte tokens, three merged tokens, two control tokens and a user-defined one.
pub(crate) fn byte_level_file() -> Vec<u8> {
    byte_level("gpt-2").finish()
}

fn byte_level(pre: &str) -> Writer {
    let mut next = 0x100;
    let mut tokens: Vec<String> = (0..=u8::MAX)
        .map(|byte| {
            let plain = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let code = if plain { u32::from(byte) } else { next };
            next += u32::from(!plain);
            char::from_u32(code).unwrap().to_string()
        })
        .collect();
    let extra = ["Ġt", "he", "Ġthe", "<|end|>", "<|start|>", "a  b"];
    tokens.extend(extra.map(String::from));
    let mut types = vec![1; tokens.len() - 3];
    types.extend([3, 3, 4]);
    Writer::new(3)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", pre)
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", types)
        .metadata("tokenizer.ggml.merges", ["Ġ t", "h e", "Ġt he"].as_slice())
        .metadata("tokenizer.ggml.bos_token_id", 260u32)
        .metadata("tokenizer.ggml.eos_token_id", 259u32)
}

/// `<unk>`, `<s>`, `</s>`, byte tokens, then a few words.
pub(crate) fn sentence_piece_file() -> Vec<u8> {
    sentence_piece().finish()
}

fn sentence_piece() -> Writer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
    let words = ["▁", "a", "b", "é", "▁a", "ab", "▁ab", "▁▁", "日"];
    tokens.extend(words.map(String::from));
    let mut types = vec![2, 3, 3];
    types.extend([6; 256]);
    types.extend([1; 9]);
    let mut scores = vec![0.0f32; 259];
    scores.extend([-1.0, -1.0, -1.0, -1.0, -3.0, -2.0, -4.0, -5.0, -1.0]);
    Writer::new(3)
        .metadata("tokenizer.ggml.model", "llama")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", types)
        .metadata("tokenizer.ggml.scores", scores)
}

pub(crate) fn tokenizer(file: &[u8]) -> Tokenizer {
    Tokenizer::from_gguf(Gguf::parse(file).unwrap().metadata()).unwrap()
}

fn error(writer: Writer) -> TextError {
    Tokenizer::from_gguf(Gguf::parse(&writer.finish()).unwrap().metadata()).unwrap_err()
}

const PLAIN: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
const SPECIAL: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

#[test]
fn bytes_are_merged_by_rank() {
    let tokenizer = tokenizer(&byte_level_file());
    let encode = |text| tokenizer.encode(text, PLAIN).unwrap();
    assert_eq!(encode(" the"), [258]);
    assert_eq!(encode("the"), [u32::from(b't'), 257]);
    assert_eq!(encode("é"), [0xc3, 0xa9]);
    assert!(encode("").is_empty());
}

#[test]
fn control_tokens_are_parsed_only_on_request_and_user_defined_always() {
    let tokenizer = tokenizer(&byte_level_file());
    let plain = tokenizer.encode("<|end|>a  b", PLAIN).unwrap();
    assert_eq!(plain.len(), "<|end|>".len() + 1);
    assert_eq!(plain.last(), Some(&261));
    assert_eq!(
        tokenizer.encode("<|end|>a  b", SPECIAL).unwrap(),
        [259, 261]
    );
}

#[test]
fn boundary_tokens_are_added_as_the_file_says() {
    let flagged = |bos: bool, eos: bool| {
        let file = byte_level("gpt-2")
            .metadata("tokenizer.ggml.add_bos_token", bos)
            .metadata("tokenizer.ggml.add_eos_token", eos)
            .finish();
        tokenizer(&file).encode(" the", SPECIAL).unwrap()
    };
    assert_eq!(flagged(false, false), [258]);
    assert_eq!(flagged(true, false), [260, 258]);
    assert_eq!(flagged(true, true), [260, 258, 259]);
    // Llama 3's family adds BOS where the file is silent.
    let file = byte_level("llama-bpe").finish();
    let tokens = tokenizer(&file).encode(" the", SPECIAL).unwrap();
    assert_eq!(tokens, [260, 258]);
}

#[test]
fn a_special_token_renews_the_space_prefix() {
    let tokenizer = tokenizer(&sentence_piece_file());
    let (space, ab) = (259, 265);
    assert_eq!(tokenizer.encode("ab", SPECIAL).unwrap(), [1, ab]);
    assert_eq!(
        tokenizer.encode("ab</s>ab", SPECIAL).unwrap(),
        [1, ab, 2, ab]
    );
    assert_eq!(tokenizer.encode("", SPECIAL).unwrap(), [1]);
    let file = sentence_piece()
        .metadata("tokenizer.ggml.add_space_prefix", false)
        .finish();
    let tokens = super::tests::tokenizer(&file).encode("ab ", PLAIN).unwrap();
    assert_eq!(tokens, [264, space]);
}

#[test]
fn unknown_characters_become_their_bytes() {
    let tokenizer = tokenizer(&sentence_piece_file());
    let tokens = tokenizer.encode("é日\n", PLAIN).unwrap();
    assert_eq!(tokens, [259, 262, 267, 3 + 0x0a]);
    let tokens = tokenizer.encode("ü", PLAIN).unwrap();
    assert_eq!(tokens, [259, 3 + 0xc3, 3 + 0xbc]);
}

#[test]
fn end_tokens_are_those_named_and_those_known() {
    let ends: Vec<u32> = tokenizer(&byte_level_file()).end_of_generation().collect();
    assert_eq!(ends, [259]);
    let file = byte_level("gpt-2")
        .metadata("tokenizer.ggml.eot_token_id", 260u32)
        .finish();
    let tokenizer = tokenizer(&file);
    assert!(tokenizer.is_end_of_generation(260) && tokenizer.is_end_of_generation(259));
    assert!(!tokenizer.is_end_of_generation(258) && !tokenizer.is_end_of_generation(9999));
    assert!(tokenizer.is_control(260) && !tokenizer.is_control(261));
}

#[test]
fn bad_files_are_refused_with_what_is_wrong() {
    let message = error(byte_level("no-such-thing")).to_string();
    assert!(
        message.contains("`no-such-thing`") && message.contains("smollm"),
        "{message}"
    );
    let wordpiece = Writer::new(3).metadata("tokenizer.ggml.model", "bert");
    let found = "bert".to_owned();
    assert_eq!(error(wordpiece), TextError::UnknownModel { found });
    let key = "tokenizer.ggml.model".to_owned();
    assert_eq!(
        error(Writer::new(3)),
        TextError::Metadata(GgufError::MissingKey { key })
    );
    let small = Writer::new(3)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.tokens", ["a", "b"].as_slice());
    let merges = |lines: &[&str]| small_with_merges(lines);
    assert_eq!(error(merges(&["a b"])), TextError::BadMerge { merge: 0 });
    assert_eq!(error(merges(&["ab"])), TextError::BadMerge { merge: 0 });
    let bos = small
        .metadata("tokenizer.ggml.merges", [].as_slice())
        .metadata("tokenizer.ggml.bos_token_id", 2u32);
    assert_eq!(
        error(bos),
        TextError::TokenOutOfRange {
            key: "tokenizer.ggml.bos_token_id",
            found: 2,
            tokens: 2
        }
    );
    let types = small_with_merges(&[]).metadata("tokenizer.ggml.token_type", vec![1]);
    assert_eq!(
        error(types),
        TextError::LengthMismatch {
            key: "tokenizer.ggml.token_type",
            found: 1,
            tokens: 2
        }
    );
    let boundary = small_with_merges(&[]).metadata("tokenizer.ggml.add_bos_token", true);
    assert_eq!(error(boundary), TextError::NoBoundaryToken);
}

fn small_with_merges(lines: &[&str]) -> Writer {
    Writer::new(3)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.tokens", ["a", "b"].as_slice())
        .metadata("tokenizer.ggml.merges", lines)
}
