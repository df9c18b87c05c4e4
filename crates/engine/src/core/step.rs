//! One step: a forward pass that all requests share, then each one's private work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use relight_protocol::recorder::Participant;
use relight_protocol::{Event, LatchCause, Latched, Phase, RequestId, Started};

use super::{Core, Entry, Unmeasured, private};
use crate::backend::{Backend, BackendError};
use crate::containment::{contained, drop_quietly};
use crate::scheduler::{StepKind, StepPlan};
use crate::sequence::SequenceKey;
use crate::{injected, recording, report};

/// Why what was computed cannot be used.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("the shared step failed")]
    Backend(#[from] BackendError),
    #[error("no row of the step had finite logits")]
    NonFiniteLogits,
}

impl<B: Backend> Core<'_, B> {
    /// One step: a forward pass, then one token for every sequence that is due one.
    ///
    /// # Errors
    /// The core has latched: its pages cannot be trusted any more. It must be replaced, and
    /// every request that it had begun anew. Another step says the same again.
    pub fn step(&mut self, now: Duration) -> Result<(), Latched> {
        self.check_latch()?;
        if self.scheduler.has_work() {
            let (plan, participants) = self.compute()?;
            self.guarded(&participants, |core| {
                core.note_hits();
                core.draw(&plan);
            });
        }
        recording::idle();
        self.check_latch()?;
        self.report(now);
        Ok(())
    }

    /// How long the last step took, if it computed anything.
    pub fn note_duration(&mut self, took: Duration) {
        let Some(unmeasured) = self.unmeasured.take() else {
            return;
        };
        let forward = self
            .backend
            .costs()
            .parts()
            .iter()
            .map(|(_, time)| time)
            .sum();
        let before = std::mem::replace(&mut self.counters.forward_us, forward);
        let computing = Duration::from_micros(forward.saturating_sub(before));
        self.counters.rest += took.saturating_sub(computing);
        let work = unmeasured.work;
        self.costs.learn(work, took);
        self.pace.learn(work, unmeasured.kind, took);
        if unmeasured.kind == StepKind::Answers {
            let rows = usize::try_from(work.rows).unwrap_or(usize::MAX);
            self.row_times.learn(rows, took);
        }
    }

    fn check_latch(&self) -> Result<(), Latched> {
        self.latch.clone().map_or(Ok(()), Err)
    }

    /// The part of a step that all requests share. If it fails, the core latches.
    fn compute(&mut self) -> Result<(StepPlan, Vec<Participant>), Latched> {
        self.counters.steps_begun += 1;
        report::watch_workers();
        // Nothing that a panic has left half done is used again: the core latches.
        let pace = self.pace;
        let row_times = self.row_times.clone();
        let planned = catch_unwind(AssertUnwindSafe(|| {
            self.scheduler.set_pace(pace);
            self.scheduler.set_row_times(row_times);
            self.scheduler.plan(&self.backend)
        }));
        let plan = planned.map_err(|panic| {
            drop_quietly(panic);
            let everybody = self.participants(self.scheduler.requests());
            self.latch_with(LatchCause::Panicked, everybody, report::take_of_workers())
        })?;
        let requests = plan.parts().iter().map(|part| part.key.request);
        let participants = self.participants(requests);
        let work = plan.work();
        let predicted_ms = self.costs.predict(work);
        recording::shared(self.counters.steps_begun, predicted_ms, &participants);
        // As above.
        let computed = catch_unwind(AssertUnwindSafe(|| self.shared_step(&plan)));
        let (cause, report) = match computed {
            Ok(Ok(())) => {
                report::unwatch();
                let kind = plan.kind();
                self.unmeasured = Some(Unmeasured { work, kind });
                self.counters.steps += 1;
                self.counters.latches_in_a_row = 0;
                self.come_through(&participants);
                return Ok((plan, participants));
            }
            Ok(Err(error)) => {
                report::unwatch();
                let cause = match error {
                    StepError::Backend(_) => LatchCause::Failed,
                    StepError::NonFiniteLogits => {
                        self.distrust(&participants);
                        LatchCause::NonFiniteLogits
                    }
                };
                (cause, Some(report::cut(chain(&error))))
            }
            Err(panic) => {
                let report = report::take_of_workers();
                drop_quietly(panic);
                (LatchCause::Panicked, report)
            }
        };
        Err(self.latch_with(cause, participants, report))
    }

    /// Each request once, in order.
    fn participants(&self, requests: impl Iterator<Item = RequestId>) -> Vec<Participant> {
        let mut participants: Vec<Participant> = Vec::new();
        for request in requests {
            if participants.iter().all(|known| known.request != request) {
                let is_new = self.is_new(request);
                participants.push(Participant { request, is_new });
            }
        }
        participants
    }

    /// Whether a request has not come through a step of this core yet.
    pub(super) fn is_new(&self, id: RequestId) -> bool {
        match self.requests.get(&id) {
            Some(Entry::Serving(serving)) => serving.is_new(),
            Some(Entry::Preparing { .. }) | None => true,
        }
    }

    fn come_through(&mut self, participants: &[Participant]) {
        for participant in participants {
            if let Some(Entry::Serving(serving)) = self.requests.get_mut(&participant.request) {
                serving.come_through();
            }
        }
    }

    /// What these had computed in earlier steps may be why their logits are broken now: the
    /// next core must not find it.
    fn distrust(&mut self, participants: &[Participant]) {
        for participant in participants {
            self.scheduler.discard_request(participant.request);
        }
    }

    fn shared_step(&mut self, plan: &StepPlan) -> Result<(), StepError> {
        assert!(!plan.is_empty(), "there is work, but the step is empty");
        for copy in plan.copies() {
            self.backend
                .copy_page_prefix(copy.source, copy.target, copy.tokens);
        }
        let requests = || plan.parts().iter().map(|part| part.key.request);
        injected::shared(requests())?;
        let (backend, logits) = (&mut self.backend, &mut self.logits);
        plan.with_batch(|batch| backend.forward(batch, logits))?;
        let logit_rows = plan.logit_rows();
        assert_eq!(logits.len(), logit_rows * backend.vocabulary());
        let rows = plan.draws();
        let rows = rows.flat_map(|draw| draw.rows.iter().map(move |_row| draw.key.request));
        injected::spoil(logits, backend.vocabulary(), rows);
        // Before anything is confirmed: broken pages must not be remembered.
        if logit_rows > 0 && !self.is_any_row_usable(plan) {
            return Err(StepError::NonFiniteLogits);
        }
        injected::confirm(requests());
        self.scheduler.confirm(plan, &self.backend);
        Ok(())
    }

    /// Of the rows that are no drafts: what came of those may be of no sequence.
    fn is_any_row_usable(&self, plan: &StepPlan) -> bool {
        let vocabulary = self.backend.vocabulary();
        plan.draws().any(|draw| {
            let serving = match self.requests.get(&draw.key.request) {
                Some(Entry::Serving(serving)) => serving,
                Some(Entry::Preparing { .. }) | None => return false,
            };
            let start = draw.first * vocabulary;
            let row = self.logits.get(start..start + vocabulary);
            row.is_some_and(|row| serving.can_draw_from(draw.key.choice, row))
        })
    }

    fn note_hits(&mut self) {
        for (key, tokens) in self.scheduler.take_hits() {
            if let Some(Entry::Serving(serving)) = self.requests.get_mut(&key.request)
                && let Some(cached_tokens) = serving.note_hit(tokens)
            {
                self.counters.cached_tokens += u64::from(cached_tokens);
                self.events.push(Event::Started(Started {
                    id: key.request,
                    cached_tokens,
                }));
            }
        }
    }

    /// Draws a token for every part of the step that is due one, and further ones as long as
    /// they are those that were drafted. Each is its request's
    /// private work: what goes wrong there ends that request only.
    fn draw(&mut self, plan: &StepPlan) {
        let vocabulary = self.backend.vocabulary().max(1);
        let mut logits = std::mem::take(&mut self.logits);
        for draw in plan.draws() {
            self.counters.drafted_tokens += draw.rows.len() as u64 - 1;
            let rows = logits.chunks_exact_mut(vocabulary).skip(draw.first);
            for (index, row) in rows.take(draw.rows.len()).enumerate() {
                if self.latch.is_some() {
                    break;
                }
                let token = self.draw_one(draw.key, row, index > 0);
                if token.is_none_or(|token| !draw.goes_on(index, token)) {
                    break;
                }
            }
        }
        self.logits = logits;
    }

    /// Draws a token from `logits`, which are those after a draft or not. Returns the token
    /// if the choice goes on after it.
    fn draw_one(&mut self, key: SequenceKey, logits: &mut [f32], is_draft: bool) -> Option<u32> {
        let id = key.request;
        let Some(Entry::Serving(serving)) = self.requests.get_mut(&id) else {
            // Failed earlier in this step, by another of its choices.
            return None;
        };
        let emitted = self.events.len();
        let events = &mut self.events;
        let drawn = contained(private(id, Phase::Sample), || {
            serving.draw(key.choice, logits, events)
        });
        match drawn {
            Ok(token) => {
                self.counters.generated_tokens += 1;
                let is_open = serving.is_open(key.choice);
                if is_draft {
                    self.counters.accepted_drafts += 1;
                    self.scheduler.confirm_draft(key, &self.backend);
                }
                if is_open {
                    self.scheduler.push(key, token);
                } else {
                    self.scheduler.remove(key);
                }
                self.finish_if_complete(id);
                is_open.then_some(token)
            }
            Err(fault) => {
                // What the broken phase had half emitted must not get out.
                self.events.truncate(emitted);
                self.fail(id, fault, true);
                None
            }
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
