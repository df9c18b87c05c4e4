//! A vocabulary small enough for random tokens to hit stop strings and split characters.

use relight_gguf::{GgmlType, Gguf, Writer};

use crate::language::Language;

const WORDS: [&str; 8] = ["a", "b", "ab", "ba", "é", "😀", "\u{2581}a", "\u{2581}"];

/// `<unk>`, `<s>`, `</s>`, one token per byte, and the words.
pub(crate) const SIZE: usize = 3 + 256 + WORDS.len();

pub(crate) const FIRST_BYTE: u32 = 3;
pub(crate) const FIRST_WORD: u32 = FIRST_BYTE + 256;

/// Worth drawing often: words that make stop strings, and the bytes of two characters.
pub(crate) const NOTABLE_TOKENS: [u32; 13] = [
    2,
    FIRST_WORD,
    FIRST_WORD + 1,
    FIRST_WORD + 2,
    FIRST_WORD + 3,
    FIRST_WORD + 4,
    FIRST_WORD + 5,
    FIRST_BYTE + 0xc3,
    FIRST_BYTE + 0xa9,
    FIRST_BYTE + 0xf0,
    FIRST_BYTE + 0x9f,
    FIRST_BYTE + 0x98,
    FIRST_BYTE + 0x80,
];

const TEMPLATE: &str = "{% for message in messages %}{% if message.role == 'tool' %}\
    {{ raise_exception('no tools') }}{% endif %}{{ message.content }}{% endfor %}";

/// The language of a model with this vocabulary.
pub(crate) fn language() -> Language {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..=255_u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(WORDS.map(String::from));
    let kinds = [2, 3, 3]
        .into_iter()
        .chain(std::iter::repeat_n(6, 256))
        .chain(std::iter::repeat_n(1, WORDS.len()));
    let kinds: Vec<i32> = kinds.collect();
    let scores: Vec<f32> = vec![0.0; SIZE];
    let bytes = Writer::new(3)
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.model", "llama")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.scores", scores)
        .metadata("tokenizer.ggml.bos_token_id", 1_u32)
        .metadata("tokenizer.ggml.eos_token_id", 2_u32)
        .metadata("tokenizer.ggml.add_bos_token", true)
        .metadata("tokenizer.chat_template", TEMPLATE)
        .tensor("unused", &[1], GgmlType::F32, &[0; 4])
        .finish();
    let gguf = Gguf::parse(&bytes).unwrap();
    Language::from_gguf(gguf.metadata(), None).unwrap()
}
