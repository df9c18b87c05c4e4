//! Small vocabularies that tokenize any text: pieces are learnt from an embedded text by
//! byte-pair merging (Sennrich, Haddow and Birch, 2016) and stored in the two ways that
//! model files use.

use std::collections::{BTreeMap, BTreeSet};

use relight_gguf::Writer;

use crate::Architecture;

const CORPUS: &str = include_str!("corpus.txt");
/// SentencePiece writes a space as this.
const SPACE_MARK: char = '\u{2581}';

/// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Score of pieces that merging never forms, as converters write it.
const SCORE_NONE: f32 = -1000.0;

/// `tokenizer.ggml.*` of one file.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    model: &'static str,
    pre: &'static str,
    tokens: Vec<String>,
    types: Vec<i32>,
    scores: Option<Vec<f32>>,
    merges: Option<Vec<String>>,
    /// Names of the tokens with a role.
    roles: Vec<(&'static str, &'static str)>,
    add_bos: bool,
    chat_template: &'static str,
}

/// A turn opens with a role and a newline and closes with a marker.
const CHATML: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
    {% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const TURNS: &str = "{{ bos_token }}{% for message in messages %}\
    {% set role = 'model' if message['role'] == 'assistant' else message['role'] %}\
    {{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}\
    {% endfor %}\
    {% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

impl Vocabulary {
    /// The kind of vocabulary that goes with an architecture, of exactly `size` tokens.
    pub(crate) fn new(architecture: Architecture, size: usize) -> Self {
        match architecture {
            Architecture::Llama => byte_level("smollm", size),
            Architecture::Qwen2 => byte_level("qwen2", size),
            Architecture::Gemma3 => sentence_pieces(size),
        }
    }

    /// Tokens that text does not contain, so that a model should hardly ever choose them.
    pub(crate) fn is_special(&self, token: usize) -> bool {
        let kind = self.types.get(token).copied();
        kind.is_none_or(|kind| ![NORMAL, BYTE].contains(&kind))
    }

    pub(crate) fn write(self, mut writer: Writer, chat_template: bool) -> Writer {
        let id = |name: &str| self.tokens.iter().position(|token| token == name);
        let roles: Vec<(&str, u32)> = self
            .roles
            .iter()
            .filter_map(|(role, name)| Some((*role, u32::try_from(id(name)?).ok()?)))
            .collect();
        writer = writer
            .metadata("tokenizer.ggml.model", self.model)
            .metadata("tokenizer.ggml.pre", self.pre)
            .metadata("tokenizer.ggml.tokens", self.tokens)
            .metadata("tokenizer.ggml.token_type", self.types);
        if let Some(scores) = self.scores {
            writer = writer.metadata("tokenizer.ggml.scores", scores);
        }
        if let Some(merges) = self.merges {
            writer = writer.metadata("tokenizer.ggml.merges", merges);
        }
        for (role, id) in roles {
            writer = writer.metadata(&format!("tokenizer.ggml.{role}_token_id"), id);
        }
        writer = writer
            .metadata("tokenizer.ggml.add_bos_token", self.add_bos)
            .metadata("tokenizer.ggml.add_space_prefix", false);
        if chat_template {
            writer = writer.metadata("tokenizer.chat_template", self.chat_template);
        }
        writer
    }
}

/// Byte-level pieces with a merge list, as `gpt2` models have them. `smollm` files put the
/// special tokens first, `qwen2` files put them last.
fn byte_level(pre: &'static str, size: usize) -> Vocabulary {
    let specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    let bytes: Vec<String> = (0..=u8::MAX).map(|byte| letter(byte).to_string()).collect();
    let words =
        words(CORPUS).map(|word| word.bytes().map(|byte| letter(byte).to_string()).collect());
    let wanted = size.saturating_sub(specials.len() + bytes.len());
    let learnt = learn(words, wanted);
    let specials = specials.map(str::to_owned);
    let pieces = bytes.into_iter().chain(learnt.pieces);
    let mut tokens: Vec<String> = if pre == "qwen2" {
        pieces.chain(specials.clone()).collect()
    } else {
        specials.iter().cloned().chain(pieces).collect()
    };
    let mut types: Vec<i32> = tokens
        .iter()
        .map(|token| {
            if specials.contains(token) {
                CONTROL
            } else {
                NORMAL
            }
        })
        .collect();
    fill_up(&mut tokens, &mut types, size);
    let bos = if pre == "qwen2" {
        "<|endoftext|>"
    } else {
        "<|im_start|>"
    };
    Vocabulary {
        model: "gpt2",
        pre,
        tokens,
        types,
        scores: None,
        merges: Some(learnt.merges),
        roles: vec![
            ("bos", bos),
            ("eos", "<|im_end|>"),
            ("padding", "<|endoftext|>"),
        ],
        add_bos: false,
        chat_template: CHATML,
    }
}

/// Character pieces with scores and a fall-back to bytes, as `llama` (SentencePiece)
/// models have them. A piece's score is minus the rank at which merging forms it.
fn sentence_pieces(size: usize) -> Vocabulary {
    let specials = [
        ("<pad>", CONTROL),
        ("<eos>", CONTROL),
        ("<bos>", CONTROL),
        ("<unk>", UNKNOWN),
        ("<start_of_turn>", CONTROL),
        ("<end_of_turn>", CONTROL),
    ];
    let mark = |character: char| {
        if character == ' ' {
            SPACE_MARK
        } else {
            character
        }
    };
    let words: Vec<Vec<String>> = words(CORPUS)
        .map(|word| {
            word.chars()
                .map(|character| mark(character).to_string())
                .collect()
        })
        .collect();
    let characters: BTreeSet<String> = words.iter().flatten().cloned().collect();
    let wanted = size.saturating_sub(specials.len() + 256 + characters.len());
    let learnt = learn(words.into_iter(), wanted);

    let mut tokens: Vec<String> = specials
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let mut types: Vec<i32> = specials.iter().map(|(_, kind)| *kind).collect();
    let mut scores = vec![SCORE_NONE; tokens.len()];
    tokens.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
    types.resize(tokens.len(), BYTE);
    scores.resize(tokens.len(), 0.0);
    let pieces = learnt.pieces.into_iter().chain(characters);
    for (rank, piece) in pieces.enumerate() {
        tokens.push(piece);
        scores.push(-(rank as f32));
    }
    types.resize(tokens.len(), NORMAL);
    fill_up(&mut tokens, &mut types, size);
    scores.resize(tokens.len(), SCORE_NONE);
    Vocabulary {
        model: "llama",
        pre: "default",
        tokens,
        types,
        scores: Some(scores),
        merges: None,
        roles: vec![
            ("bos", "<bos>"),
            ("eos", "<eos>"),
            ("unknown", "<unk>"),
            ("padding", "<pad>"),
            ("eot", "<end_of_turn>"),
        ],
        add_bos: true,
        chat_template: TURNS,
    }
}

/// Converters fill a vocabulary up to the rows of the embedding in the same way.
fn fill_up(tokens: &mut Vec<String>, types: &mut Vec<i32>, size: usize) {
    assert!(
        tokens.len() <= size,
        "a vocabulary of {size} is too small: {} tokens are needed",
        tokens.len()
    );
    let missing = tokens.len()..size;
    tokens.extend(missing.map(|index| format!("[PAD{index}]")));
    types.resize(size, UNUSED);
}

#[derive(Debug, Default)]
struct Learnt {
    /// `left right`, in order.
    merges: Vec<String>,
    /// What the merges form, without repeats.
    pieces: Vec<String>,
}

/// Merges the most frequent pair of symbols until `wanted` pieces are found or no pair
/// occurs twice. Of equally frequent pairs the one of older symbols wins.
fn learn(words: impl Iterator<Item = Vec<String>>, wanted: usize) -> Learnt {
    let mut symbols = Symbols::default();
    let mut counted: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for word in words {
        let word = word.into_iter().map(|symbol| symbols.number(symbol));
        *counted.entry(word.collect()).or_default() += 1;
    }
    let mut words: Vec<(Vec<usize>, usize)> = counted.into_iter().collect();
    let mut learnt = Learnt::default();
    while learnt.pieces.len() < wanted {
        let Some((left, right)) = most_frequent_pair(&words) else {
            break;
        };
        let (left_text, right_text) = (symbols.text(left), symbols.text(right));
        let piece = format!("{left_text}{right_text}");
        learnt.merges.push(format!("{left_text} {right_text}"));
        let known = symbols.numbers.len();
        let merged = symbols.number(piece.clone());
        if merged == known {
            learnt.pieces.push(piece);
        }
        for (word, _) in &mut words {
            merge(word, (left, right), merged);
        }
    }
    learnt
}

/// Texts by number and back.
#[derive(Debug, Default)]
struct Symbols {
    numbers: BTreeMap<String, usize>,
    texts: Vec<String>,
}

impl Symbols {
    fn number(&mut self, text: String) -> usize {
        let next = self.texts.len();
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        })
    }

    fn text(&self, number: usize) -> &str {
        self.texts.get(number).map_or("", String::as_str)
    }
}

fn most_frequent_pair(words: &[(Vec<usize>, usize)]) -> Option<(usize, usize)> {
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (word, count) in words {
        for pair in word.windows(2) {
            if let [left, right] = *pair {
                *counts.entry((left, right)).or_default() += count;
            }
        }
    }
    let best = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    best.filter(|(_, count)| *count > 1).map(|(pair, _)| pair)
}

fn merge(word: &mut Vec<usize>, (left, right): (usize, usize), merged: usize) {
    let mut symbols = std::mem::take(word).into_iter().peekable();
    while let Some(symbol) = symbols.next() {
        if symbol == left && symbols.next_if_eq(&right).is_some() {
            word.push(merged);
        } else {
            word.push(symbol);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Letter,
    Digit,
    Space,
    Other,
}

fn class(character: char) -> Class {
    match character {
        _ if character.is_alphabetic() => Class::Letter,
        _ if character.is_numeric() => Class::Digit,
        _ if character.is_whitespace() => Class::Space,
        _ => Class::Other,
    }
}

/// Cuts text where the pre-tokenizers of both byte-level families cut it: runs of letters or
/// of punctuation with one space before them, single digits, runs of white space.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = Class::Digit;
    for character in text.chars() {
        let class = class(character);
        let space_before = words.last().is_some_and(|word| word.ends_with(' '));
        match words.last_mut() {
            Some(word) if class == last && class != Class::Digit => word.push(character),
            Some(word) if space_before && matches!(class, Class::Letter | Class::Other) => {
                word.pop();
                words.push(format!(" {character}"));
            }
            _ => words.push(character.to_string()),
        }
        last = class;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

/// The printable character that stands for a byte in byte-level vocabularies: itself, or
/// one of the characters from U+0100 for bytes that do not print.
fn letter(byte: u8) -> char {
    let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if prints(&byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|lower| !prints(lower)).count();
    let code = u32::try_from(rank).ok().map(|rank| 0x100 + rank);
    code.and_then(char::from_u32).unwrap_or_default()
}

#[cfg(test)]
mod tests;
