//! Ids of llama.cpp for a corpus of strings on the two real models, and for the prompts
//! whose logits are recorded. `oracle/README.md` says how they were made.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use relight_gguf::Header;
use serde_json::Value;

use super::{PLAIN, SPECIAL};
use crate::text::{Detokenizer, EncodeOptions, Tokenizer};

/// More than the metadata of either model.
const HEAD_BYTES: u64 = 32 << 20;

fn read_vectors(name: &str) -> Value {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/vectors"));
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// The metadata of a real model file.
pub(crate) struct Head {
    bytes: Vec<u8>,
    file_bytes: usize,
}

impl Head {
    pub(crate) fn header(&self) -> Header<'_> {
        Header::parse(&self.bytes, self.file_bytes).unwrap()
    }
}

pub(crate) fn read_head(model: &str) -> Head {
    let folder = std::env::var_os("RELIGHT_MODELS").map_or_else(
        || Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models")).to_owned(),
        PathBuf::from,
    );
    let path = folder.join(model);
    let file = fs::File::open(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo xtask setup` fetches it",
            path.display()
        )
    });
    let file_bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut bytes = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut bytes).unwrap();
    Head { bytes, file_bytes }
}

fn load(vectors: &Value) -> Tokenizer {
    let head = read_head(vectors["model"].as_str().unwrap());
    Tokenizer::from_gguf(head.header().metadata()).unwrap()
}

fn ids(json: &Value) -> Vec<u32> {
    let ids = json.as_array().unwrap().iter();
    ids.map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

fn check(name: &str) {
    let vectors = read_vectors(&format!("tokenizer-{name}.json"));
    let tokenizer = load(&vectors);
    let strings = vectors["strings"].as_array().unwrap();
    assert!(strings.len() > 150);
    for string in strings {
        let text = string["text"].as_str().unwrap();
        for (key, options) in [("plain", PLAIN), ("special", SPECIAL)] {
            let tokens = tokenizer.encode(text, options).unwrap();
            assert_eq!(tokens, ids(&string[key]), "{name}, {key}: {text:?}");
        }
        check_decoding(&tokenizer, text);
    }
    for prompt in read_vectors(&format!("{name}.json"))["prompts"]
        .as_array()
        .unwrap()
    {
        let text = prompt["text"].as_str().unwrap();
        let tokens = tokenizer.encode(text, SPECIAL).unwrap();
        assert_eq!(tokens, ids(&prompt["tokens"]), "{name}: {text:?}");
    }
}

/// Text without special tokens comes back, as far as the vocabulary can write it.
fn check_decoding(tokenizer: &Tokenizer, text: &str) {
    let tokens = tokenizer.encode(text, PLAIN).unwrap();
    let mut detokenizer = Detokenizer::document(tokenizer);
    let mut back: String = tokens
        .iter()
        .map(|&token| detokenizer.push(token))
        .collect();
    back.push_str(&detokenizer.finish());
    // SentencePiece's mark is a space, and some vocabularies lack some control characters.
    let lossy = |text: &str| -> String {
        text.replace('\u{2581}', " ")
            .chars()
            .filter(|character| !character.is_control())
            .collect()
    };
    assert_eq!(lossy(&back), lossy(text), "{text:?}");
}

#[test]
fn ids_are_those_of_the_reference_on_smollm2() {
    check("smollm2");
}

#[test]
fn ids_are_those_of_the_reference_on_gemma3() {
    check("gemma3");
}

#[test]
fn a_megabyte_of_anything_is_tokenized() {
    for name in ["tokenizer-smollm2.json", "tokenizer-gemma3.json"] {
        let tokenizer = load(&read_vectors(name));
        for unit in ["a", " ", "日", ".", "\n", "<", "ab", "x "] {
            let text = unit.repeat((1 << 20) / unit.len());
            let options = EncodeOptions {
                add_special: false,
                parse_special: true,
            };
            let tokens = tokenizer.encode(&text, options).unwrap();
            let bytes: usize = tokens
                .iter()
                .map(|&token| tokenizer.token_bytes(token).unwrap().len())
                .sum();
            assert_eq!(bytes, text.len(), "{name}: {unit:?}");
        }
    }
}
