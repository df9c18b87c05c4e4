//! The small language in which pre-tokenizers are written: a rule is a sequence of
//! repeated character classes, matched greedily and with backtracking as a regular
//! expression would be, in time linear in the run that it looks at.

use super::character::{CharacterKinds, kind};

/// A class of characters: by kind, less some characters, plus some characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct CharacterClass {
    pub(super) kinds: u16,
    pub(super) without: &'static [(char, char)],
    pub(super) with: &'static [(char, char)],
}

impl CharacterClass {
    pub(super) const fn of(kinds: u16) -> Self {
        Self {
            kinds,
            without: &[],
            with: &[],
        }
    }

    pub(super) const fn ranges(with: &'static [(char, char)]) -> Self {
        Self {
            kinds: 0,
            without: &[],
            with,
        }
    }

    fn contains(&self, kinds: &CharacterKinds, character: char) -> bool {
        let within = |ranges: &[(char, char)]| {
            ranges
                .iter()
                .any(|&(first, last)| (first..=last).contains(&character))
        };
        (kinds.of(character) & self.kinds != 0 && !within(self.without)) || within(self.with)
    }
}

/// One class, repeated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    class: CharacterClass,
    least: usize,
    most: usize,
}

impl Step {
    const fn new(class: CharacterClass, least: usize, most: usize) -> Self {
        Self { class, least, most }
    }
}

/// `[class]`
pub(super) const fn one(class: CharacterClass) -> Step {
    Step::new(class, 1, 1)
}

/// `[class]?`
pub(super) const fn optional(class: CharacterClass) -> Step {
    Step::new(class, 0, 1)
}

/// `[class]+`
pub(super) const fn some(class: CharacterClass) -> Step {
    Step::new(class, 1, usize::MAX)
}

/// `[class]*`
pub(super) const fn any(class: CharacterClass) -> Step {
    Step::new(class, 0, usize::MAX)
}

/// `[class]{1,most}`
pub(super) const fn up_to(most: usize, class: CharacterClass) -> Step {
    Step::new(class, 1, most)
}

/// One alternative of a stage.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    Steps(&'static [Step]),
    /// Steps, then an English contraction in any case if there is one.
    StepsThenContraction(&'static [Step]),
    /// `'s|'t|'re|'ve|'m|'ll|'d`
    Contraction,
    /// The same in any case.
    ContractionAnyCase,
    /// `\s+(?!\S)`: white space, but not its last character if text follows.
    SpaceBeforeSpace,
}

impl Rule {
    /// Length in bytes of the match at the start of `text`, which is never empty.
    pub(super) fn match_length(&self, kinds: &CharacterKinds, text: &str) -> Option<usize> {
        let length = match self {
            Self::Steps(steps) => match_steps(kinds, text, steps),
            Self::StepsThenContraction(steps) => match_steps(kinds, text, steps).map(|length| {
                let rest = text.get(length..).unwrap_or_default();
                length + contraction(rest, true).unwrap_or_default()
            }),
            Self::Contraction => contraction(text, false),
            Self::ContractionAnyCase => contraction(text, true),
            Self::SpaceBeforeSpace => {
                let run = white_space(kinds, text);
                if run == text.len() {
                    Some(run)
                } else {
                    last_boundary(text, run)
                }
            }
        };
        length.filter(|&length| length > 0)
    }
}

fn white_space(kinds: &CharacterKinds, text: &str) -> usize {
    text.char_indices()
        .find(|&(_, character)| kinds.of(character) & kind::WHITE == 0)
        .map_or(text.len(), |(offset, _)| offset)
}

/// Start of the last character before `end`.
fn last_boundary(text: &str, end: usize) -> Option<usize> {
    text.get(..end)?
        .char_indices()
        .next_back()
        .map(|(offset, _)| offset)
}

fn contraction(text: &str, any_case: bool) -> Option<usize> {
    let &[b'\'', first, ref rest @ ..] = text.as_bytes() else {
        return None;
    };
    let fold = |byte: u8| {
        if any_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    match fold(first) {
        b's' | b't' | b'm' | b'd' => Some(2),
        first => {
            let second = fold(*rest.first()?);
            matches!((first, second), (b'r' | b'v', b'e') | (b'l', b'l')).then_some(3)
        }
    }
}

/// Greedy match of all steps; on failure a step gives back one character at a time. The
/// recursion is as deep as there are steps.
fn match_steps(kinds: &CharacterKinds, text: &str, steps: &[Step]) -> Option<usize> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(0);
    };
    let mut end = 0;
    let mut count = 0;
    for character in text.chars() {
        if count == step.most || !step.class.contains(kinds, character) {
            break;
        }
        end += character.len_utf8();
        count += 1;
    }
    loop {
        if count < step.least {
            return None;
        }
        if let Some(length) = match_steps(kinds, text.get(end..)?, rest) {
            return Some(end + length);
        }
        end = last_boundary(text, end)?;
        count -= 1;
    }
}
