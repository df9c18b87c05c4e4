//! The smallest vocabulary in which random tokens hit stop strings and split characters.

use relight_engine::language::Language;
use relight_gguf::{GgmlType, Gguf, Writer};

use crate::SetupError;

/// `<unk>`, `<s>`, `</s>`; bytes of `é` and `😀`; words.
const TOKENS: [&str; 17] = [
    "<unk>",
    "<s>",
    "</s>",
    "<0xC3>",
    "<0xA9>",
    "<0xF0>",
    "<0x9F>",
    "<0x98>",
    "<0x80>",
    "a",
    "b",
    "ab",
    "ba",
    "é",
    "😀",
    "\u{2581}a",
    "\u{2581}",
];

/// How many tokens there are.
pub(crate) const SIZE: usize = TOKENS.len();
/// The end of a text.
pub(crate) const END: u32 = 2;
/// From here on tokens are text.
pub(crate) const FIRST_TEXT: u32 = 3;

/// The language of a model with this vocabulary.
pub(crate) fn language() -> Result<Language, SetupError> {
    // Values of `tokenizer.ggml.token_type`: unknown, control, bytes, normal.
    let kinds = (0..).zip(TOKENS).map(|(index, token)| match index {
        0 => 2,
        1 | 2 => 3,
        _ if token.starts_with('<') => 6,
        _ => 1,
    });
    let bytes = Writer::new(3)
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.model", "llama")
        .metadata("tokenizer.ggml.tokens", TOKENS.map(String::from).to_vec())
        .metadata("tokenizer.ggml.token_type", kinds.collect::<Vec<i32>>())
        .metadata("tokenizer.ggml.scores", vec![0.0_f32; SIZE])
        .metadata("tokenizer.ggml.bos_token_id", 1_u32)
        .metadata("tokenizer.ggml.eos_token_id", END)
        .tensor("unused", &[1], GgmlType::F32, &[0; 4])
        .finish();
    let gguf = Gguf::parse(&bytes)?;
    Ok(Language::from_gguf(gguf.metadata(), None)?)
}
