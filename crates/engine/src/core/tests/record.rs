//! A ledger as the supervisor keeps it, strict about the order of events.

use std::collections::BTreeMap;

use relight_protocol::{
    ChoiceIndex, ChoiceProgress, Event, Fault, FinishReason, Request, RequestId, Resume, TokenId,
    TokenLogprob, Usage,
};

#[derive(Clone, Debug, Default, PartialEq)]
struct Choice {
    tokens: Vec<TokenId>,
    text: String,
    logprobs: Vec<Vec<TokenLogprob>>,
    reason: Option<FinishReason>,
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Open,
    Finished(Usage),
    Failed(Fault),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    prompt: Option<(Vec<TokenId>, Option<String>)>,
    choices: Vec<Choice>,
    /// Cached tokens, as this engine said when it started.
    started: Option<u32>,
    outcome: Outcome,
    events: usize,
}

impl Entry {
    fn new(request: Request) -> Self {
        let choices = vec![Choice::default(); usize::from(request.choices)];
        Self {
            request,
            prompt: None,
            choices,
            started: None,
            outcome: Outcome::Open,
            events: 0,
        }
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        match &self.outcome {
            Outcome::Failed(fault) => Some(fault),
            Outcome::Open | Outcome::Finished(_) => None,
        }
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        match self.outcome {
            Outcome::Finished(usage) => Some(usage),
            Outcome::Open | Outcome::Failed(_) => None,
        }
    }

    /// Prompt and answer of the first choice.
    pub(super) fn conversation(&self) -> Vec<TokenId> {
        let prompt = self.prompt.iter().flat_map(|(prompt, _text)| prompt);
        prompt.chain(&self.choices[0].tokens).copied().collect()
    }

    /// Why each choice has ended.
    pub(super) fn reasons(&self) -> Vec<Option<FinishReason>> {
        self.choices.iter().map(|choice| choice.reason).collect()
    }

    /// Events that the stream was made of.
    pub(super) fn event_count(&self) -> usize {
        self.events
    }

    pub(super) fn is_open(&self) -> bool {
        self.outcome == Outcome::Open
    }

    /// The same stream, byte for byte, and the same usage but for what was cached.
    pub(super) fn assert_same(&self, other: &Self, whose: &str) {
        assert_eq!(self.prompt, other.prompt, "{whose}");
        assert_eq!(self.choices, other.choices, "{whose}");
        let counts = |entry: &Self| {
            let usage = entry.usage().expect("it has ended");
            (usage.prompt_tokens, usage.completion_tokens)
        };
        assert_eq!(counts(self), counts(other), "{whose}");
    }

    /// What was sent before the failure is right.
    pub(super) fn assert_prefix_of(&self, other: &Self) {
        for (own, whole) in self.choices.iter().zip(&other.choices) {
            assert!(whole.tokens.starts_with(&own.tokens));
            assert!(whole.text.starts_with(&own.text));
        }
    }

    fn resume(&self) -> Option<Resume> {
        let choices = (0..)
            .zip(&self.choices)
            .map(|(index, choice)| ChoiceProgress {
                choice: ChoiceIndex(index),
                tokens: choice.tokens.clone(),
                finished: choice.reason.is_some(),
            });
        Some(Resume {
            prompt_tokens: self.prompt.clone()?.0,
            choices: choices.collect(),
        })
    }

    fn apply(&mut self, event: Event) {
        assert!(self.is_open(), "after its end: {event:?}");
        self.events += 1;
        match event {
            Event::Accepted(accepted) => {
                assert!(self.prompt.is_none(), "accepted twice");
                self.prompt = Some((accepted.prompt_tokens, accepted.prompt_text));
            }
            Event::Started(started) => {
                assert!(self.prompt.is_some(), "started before it was accepted");
                assert_eq!(self.started, None, "started twice");
                self.started = Some(started.cached_tokens);
            }
            Event::Delta(delta) => {
                assert!(self.started.is_some(), "a token before it started");
                let choice = &mut self.choices[usize::from(delta.choice.0)];
                assert_eq!(choice.reason, None);
                assert_eq!(delta.token_index as usize, choice.tokens.len());
                assert_eq!(delta.text_offset as usize, choice.text.len());
                choice.tokens.push(delta.token);
                choice.text.push_str(&delta.text);
                choice.logprobs.push(delta.logprobs);
            }
            Event::ChoiceFinished(end) => {
                let choice = &mut self.choices[usize::from(end.choice.0)];
                assert_eq!(choice.reason, None);
                assert_eq!(end.token_count as usize, choice.tokens.len());
                assert_eq!(end.text_offset as usize, choice.text.len());
                choice.text.push_str(&end.text);
                choice.reason = Some(end.reason);
            }
            Event::Finished(finished) => {
                assert!(self.choices.iter().all(|choice| choice.reason.is_some()));
                let tokens: usize = self.choices.iter().map(|choice| choice.tokens.len()).sum();
                assert_eq!(finished.usage.completion_tokens as usize, tokens);
                let prompt = self.prompt.as_ref().expect("it was accepted");
                assert_eq!(finished.usage.prompt_tokens as usize, prompt.0.len());
                let cached_tokens = self.started.unwrap_or_default();
                assert_eq!(finished.usage.cached_tokens, cached_tokens);
                self.outcome = Outcome::Finished(finished.usage);
            }
            Event::Rejected(rejected) => {
                assert!(self.prompt.is_none(), "rejected after it was accepted");
                self.outcome = Outcome::Failed(rejected.fault);
            }
            Event::Failed(failed) => {
                assert!(self.prompt.is_some(), "failed before it was accepted");
                self.outcome = Outcome::Failed(failed.fault);
            }
            other => panic!("not of a request: {other:?}"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<RequestId, Entry>,
}

impl Ledger {
    pub(super) fn open(&mut self, id: RequestId, request: Request) {
        self.entries.insert(id, Entry::new(request));
    }

    pub(super) fn forget(&mut self, id: RequestId) {
        self.entries.remove(&id);
    }

    pub(super) fn entry(&self, id: RequestId) -> &Entry {
        &self.entries[&id]
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&RequestId, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn open_ids(&self) -> Vec<RequestId> {
        let open = self.entries.iter().filter(|(_id, entry)| entry.is_open());
        open.map(|(id, _entry)| *id).collect()
    }

    /// The request goes to another engine, as far as it has come.
    pub(super) fn resume(&mut self, id: RequestId) -> Option<Resume> {
        let entry = self.entries.get_mut(&id)?;
        entry.started = None;
        entry.resume()
    }

    pub(super) fn event_count(&self) -> usize {
        self.entries.values().map(|entry| entry.events).sum()
    }

    pub(super) fn apply(&mut self, event: Event) {
        let id = match &event {
            Event::Accepted(accepted) => accepted.id,
            Event::Started(started) => started.id,
            Event::Delta(delta) => delta.id,
            Event::ChoiceFinished(end) => end.id,
            Event::Finished(finished) => finished.id,
            Event::Rejected(rejected) | Event::Failed(rejected) => rejected.id,
            Event::Stats(_) => return,
            other => panic!("not from a core: {other:?}"),
        };
        let entry = self.entries.get_mut(&id);
        entry
            .expect("events of a request that is there")
            .apply(event);
    }
}
