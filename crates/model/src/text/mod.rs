//! Everything between a client's text and token ids, and back: tokenizer, streaming
//! detokenizer, chat template and stop strings. All of it is a function of the model file's
//! metadata and of what it is given; nothing here reads clocks or files.

mod byte_alphabet;
mod byte_pair;
mod chat_template;
mod detokenizer;
mod end_tokens;
mod error;
mod pre_tokenizer;
#[cfg(test)]
pub(crate) mod random;
mod sentence_piece;
mod special_tokens;
mod stop_matcher;
mod tokenizer;
mod vocabulary;

pub use chat_template::{ChatInput, ChatTemplate, SpecialTexts, TemplateError, TemplateLimits};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop_matcher::{Released, StopMatcher};
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocabulary::TokenKind;
