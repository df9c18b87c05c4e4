//! Cuts text into the pieces inside which byte pairs are merged.

mod character;
mod deepseek;
mod rule;
mod table;

use character::{CharacterKinds, kind};
use rule::Rule;
use table::{SCHEMES, Scheme, Stage};

use super::TextError;

/// The cut of one model family, by its name in `tokenizer.ggml.pre`.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    scheme: &'static Scheme,
    kinds: CharacterKinds,
}

impl PreTokenizer {
    /// # Errors
    /// `UnknownPreTokenizer` if no scheme has this name.
    pub(super) fn named(name: &str) -> Result<Self, TextError> {
        let scheme = SCHEMES
            .iter()
            .find(|scheme| scheme.names.contains(&name))
            .ok_or_else(|| TextError::UnknownPreTokenizer {
                found: name.to_owned(),
                known: known_names(),
            })?;
        Ok(Self {
            scheme,
            kinds: CharacterKinds::new()?,
        })
    }

    /// Whether a piece that is a token as a whole is taken without merging.
    pub(super) fn whole_pieces(&self) -> bool {
        self.scheme.whole_pieces
    }

    /// Whether BOS is added where the file does not say.
    pub(super) fn add_bos(&self) -> bool {
        self.scheme.add_bos
    }

    /// Calls `visit` with the pieces of `text` in order; together they are `text`.
    pub(super) fn for_each_piece<E>(
        &self,
        text: &str,
        visit: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.run(self.scheme.stages, text, visit)
    }

    /// Pieces of one stage go straight into the next, so nothing is collected. The recursion
    /// is as deep as there are stages.
    fn run<E>(
        &self,
        stages: &'static [Stage],
        text: &str,
        visit: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        if text.is_empty() {
            return Ok(());
        }
        let Some((stage, rest)) = stages.split_first() else {
            return visit(text);
        };
        let mut next = |piece: &str| self.run(rest, piece, visit);
        match stage {
            Stage::TrailingSpace => {
                let is_white = |character| self.kinds.of(character) & kind::WHITE != 0;
                let (head, tail) = text.split_at(text.trim_end_matches(is_white).len());
                next(head)?;
                next(tail)
            }
            Stage::Rules { rules, .. } => self.apply(rules, text, &mut next),
        }
    }

    fn apply<E>(
        &self,
        rules: &[Rule],
        text: &str,
        next: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        // Everything before `position` has been handed on, except `gap` bytes that no rule took.
        let mut rest = text;
        let mut gap = 0;
        loop {
            let (unmatched, tail) = rest.split_at(gap);
            let Some(character) = tail.chars().next() else {
                return next(unmatched);
            };
            let length = rules
                .iter()
                .find_map(|rule| rule.match_length(&self.kinds, tail));
            if let Some(length) = length {
                next(unmatched)?;
                let (piece, after) = tail.split_at(length);
                next(piece)?;
                rest = after;
                gap = 0;
            } else {
                gap += character.len_utf8();
            }
        }
    }
}

/// Every name in the table, for the message that refuses another one.
fn known_names() -> String {
    let mut names: Vec<&str> = SCHEMES
        .iter()
        .flat_map(|scheme| scheme.names)
        .copied()
        .collect();
    names.sort_unstable();
    names.join(", ")
}

#[cfg(test)]
mod tests;
