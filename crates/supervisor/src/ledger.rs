//! The record of every open request and of the tokens committed for it: all that is needed
//! to go on after the death of an engine, and the judge of what an engine says.
//!
//! An event is a claim. A claim that extends the record by the next token or the next byte
//! is committed, and only then delivered. One that repeats the record is dropped. One that
//! contradicts it, or leaves a gap, is a `Violation`: that engine can no longer be believed.
//! So whatever engines do, a client sees each byte once and in order.

use std::collections::BTreeMap;

use relight_protocol::{
    Accepted, ChoiceFinished, Delta, Request, RequestId, Resume, Started, Usage,
};

use crate::blame::{Fingerprint, Suspicion};

mod choice;
mod violation;

pub use choice::Choice;
pub use violation::Violation;

/// One open request.
#[derive(Debug)]
pub struct Entry {
    id: RequestId,
    request: Box<Request>,
    fingerprint: Fingerprint,
    opened_ms: u64,
    /// Token ids of the prompt, once an engine has accepted the request.
    prompt: Option<Vec<relight_protocol::TokenId>>,
    /// Part of the prompt that the first engine needed not compute.
    cached_tokens: Option<u32>,
    choices: Vec<Choice>,
    /// The engine that is up has this request.
    pub(crate) with_engine: bool,
    /// The engine that is up was given this request, and may still speak of it even if it
    /// was taken back since.
    pub(crate) known_to_engine: bool,
    /// How often it was given to an engine.
    pub(crate) attempts: u32,
    /// When it was last given to an engine, on the core's clock.
    pub(crate) sent_ms: u64,
    /// It may have ended an engine.
    pub(crate) suspicion: Option<Suspicion>,
}

impl Entry {
    fn new(id: RequestId, request: Box<Request>, fingerprint: Fingerprint, opened_ms: u64) -> Self {
        let choices = (0..request.choices).map(|_| Choice::default()).collect();
        Self {
            id,
            request,
            fingerprint,
            opened_ms,
            prompt: None,
            cached_tokens: None,
            choices,
            with_engine: false,
            known_to_engine: false,
            attempts: 0,
            sent_ms: 0,
            suspicion: None,
        }
    }

    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// When the request came, on the core's clock.
    #[must_use]
    pub fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    /// Whether an engine has accepted the request.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.prompt.is_some()
    }

    /// Whether every choice is complete, so that only `Finished` is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_accepted() && self.choices.iter().all(|choice| choice.finish().is_some())
    }

    #[must_use]
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Tokens committed over all choices.
    #[must_use]
    pub fn tokens_committed(&self) -> u64 {
        let count = |choice: &Choice| u64::from(choice.token_count());
        self.choices.iter().map(count).sum()
    }

    /// What another engine needs besides the request; `None` before it was accepted.
    #[must_use]
    pub fn resume(&self) -> Option<Resume> {
        let prompt_tokens = self.prompt.clone()?;
        let choices = (0..)
            .zip(&self.choices)
            .map(|(index, choice)| choice.progress(index))
            .collect();
        Some(Resume {
            prompt_tokens,
            choices,
        })
    }

    /// The usage by the record.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let prompt_tokens = self.prompt_tokens();
        Usage {
            prompt_tokens,
            cached_tokens: self.cached_tokens.unwrap_or(0).min(prompt_tokens),
            completion_tokens: u32::try_from(self.tokens_committed()).unwrap_or(u32::MAX),
        }
    }

    fn prompt_tokens(&self) -> u32 {
        let prompt_count = self.prompt.as_ref().map_or(0, Vec::len);
        u32::try_from(prompt_count).unwrap_or(u32::MAX)
    }

    /// Records how much of the prompt was there already. Only the first word counts: what
    /// engines after a death find depends on the death. `Ok(false)`: it was known.
    ///
    /// # Errors
    /// If the request was not accepted.
    pub fn commit_started(&mut self, started: Started) -> Result<bool, Violation> {
        if !self.is_accepted() {
            return Err(Violation::NotAccepted { id: self.id });
        }
        let is_first = self.cached_tokens.is_none();
        self.cached_tokens.get_or_insert(started.cached_tokens);
        Ok(is_first)
    }

    /// Records the prompt's ids. `Ok(false)`: they were known.
    ///
    /// # Errors
    /// If they differ from the known ones: the rest would not continue what was sent.
    pub fn commit_accepted(&mut self, accepted: &Accepted) -> Result<bool, Violation> {
        match &self.prompt {
            Some(known) if *known == accepted.prompt_tokens => Ok(false),
            Some(_) => Err(Violation::DifferentPrompt { id: self.id }),
            None => {
                self.prompt = Some(accepted.prompt_tokens.clone());
                Ok(true)
            }
        }
    }

    /// Records a token. `Ok(None)`: it was known. Otherwise the delta to deliver, whose text
    /// starts where the delivered text ends.
    ///
    /// # Errors
    /// If the claim contradicts the record or leaves a gap.
    pub fn commit_delta(
        &mut self,
        delta: Delta,
        context_tokens: u32,
    ) -> Result<Option<Delta>, Violation> {
        let tokens_max = self.request.stop.max_tokens.unwrap_or(context_tokens);
        let tokens_max = tokens_max.min(context_tokens);
        self.accepted_choice(delta.choice.0)?
            .commit_delta(delta, tokens_max)
    }

    /// Records the end of a choice. `Ok(None)`: it was known.
    ///
    /// # Errors
    /// If the claim contradicts the record or leaves a gap.
    pub fn commit_choice_finished(
        &mut self,
        finished: ChoiceFinished,
    ) -> Result<Option<ChoiceFinished>, Violation> {
        self.accepted_choice(finished.choice.0)?
            .commit_end(finished)
    }

    /// Checks that nothing is missing for the request to be complete. `cached_tokens` is
    /// recorded if no engine has said it before.
    ///
    /// # Errors
    /// If a choice has not ended.
    pub fn commit_finished(&mut self, cached_tokens: u32) -> Result<(), Violation> {
        if self.is_complete() {
            self.cached_tokens.get_or_insert(cached_tokens);
            Ok(())
        } else {
            Err(Violation::FinishedEarly { id: self.id })
        }
    }

    fn accepted_choice(&mut self, index: u16) -> Result<&mut Choice, Violation> {
        let id = self.id;
        if self.prompt.is_none() {
            return Err(Violation::NotAccepted { id });
        }
        self.choices
            .get_mut(usize::from(index))
            .ok_or(Violation::NoSuchChoice { id, index })
    }
}

/// Every open request, in the order in which they came.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<RequestId, Entry>,
    bytes: usize,
}

impl Ledger {
    /// Opens an entry. False, and nothing done, if the id is taken.
    pub fn open(
        &mut self,
        id: RequestId,
        request: Box<Request>,
        fingerprint: Fingerprint,
        now_ms: u64,
    ) -> bool {
        if self.entries.contains_key(&id) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(fingerprint.bytes);
        self.entries
            .insert(id, Entry::new(id, request, fingerprint, now_ms));
        true
    }

    /// Closes an entry and hands it out; `None` if there is none.
    pub fn close(&mut self, id: RequestId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(entry.fingerprint.bytes);
        Some(entry)
    }

    #[must_use]
    pub fn entry(&self, id: RequestId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub fn entry_mut(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// Oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (RequestId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// Oldest first.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut Entry)> {
        self.entries.iter_mut().map(|(id, entry)| (*id, entry))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Request bytes of all entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
