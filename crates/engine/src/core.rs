//! The engine without its threads and pipes: inputs in, events and jobs out, time as an
//! argument, one owner, no lock.

mod serving;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relight_protocol::limits::{ENGINE_REQUESTS_MAX, RETRY_AFTER_S_MIN, STATS_MS_MIN};
use relight_protocol::{
    Event, Fault, Overload, Phase, Rejected, Request, RequestId, Resume, Stats,
};
use serving::{Serving, Start};

use crate::backend::{Backend, BackendError};
use crate::containment::contained;
use crate::injected;
use crate::pages::{AuditError, PageStore};
use crate::prepare::Prepared;
use crate::scheduler::{Scheduler, SchedulerConfig, StepPlan};
use crate::sequence::SequenceKey;

/// What the core is told.
#[derive(Debug)]
pub enum Input<'a> {
    /// A new request, or one that another engine had begun.
    Submit {
        id: RequestId,
        request: Box<Request>,
        resume: Option<Resume>,
    },
    /// Stop working on a request.
    Cancel { id: RequestId },
    /// A job is done.
    Prepared {
        id: RequestId,
        result: Result<Prepared<'a>, Fault>,
    },
}

/// Work for the preparation thread.
#[derive(Debug)]
pub struct PrepareJob {
    pub id: RequestId,
    pub request: Box<Request>,
    pub resume: Option<Resume>,
    /// Set when nobody wants the result any more.
    pub is_stale: Arc<AtomicBool>,
}

/// The shared step has failed. Pages and scheduler cannot be trusted any more: the core must
/// be dropped, and every request replayed on another one.
#[derive(Debug, thiserror::Error)]
pub enum Latch {
    #[error("the shared step failed")]
    Backend(#[from] BackendError),
    #[error("the shared step panicked")]
    Panicked,
    #[error("the engine has latched before")]
    Latched,
}

/// A request that the engine has.
#[derive(Debug)]
enum Entry<'a> {
    /// At the preparation thread.
    Preparing {
        is_stale: Arc<AtomicBool>,
        is_resumed: bool,
    },
    Serving(Serving<'a>),
}

/// See the module.
#[derive(Debug)]
pub struct Core<'a, B> {
    backend: B,
    scheduler: Scheduler,
    requests: BTreeMap<RequestId, Entry<'a>>,
    events: Vec<Event>,
    jobs: Vec<PrepareJob>,
    /// (rows that draw, vocabulary)
    logits: Vec<f32>,
    counters: Counters,
    reported: Option<(Duration, Stats)>,
    is_latched: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    steps: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    generated_tokens: u64,
    contained_faults: u64,
}

impl<'a, B: Backend> Core<'a, B> {
    /// `salt` keeps pages of different models apart: the model's fingerprint.
    #[must_use]
    pub fn new(backend: B, config: SchedulerConfig, salt: u128) -> Self {
        let store = PageStore::adopt(backend.page_count(), salt, &backend);
        Self {
            backend,
            scheduler: Scheduler::new(config, store),
            requests: BTreeMap::new(),
            events: Vec::new(),
            jobs: Vec::new(),
            logits: Vec::new(),
            counters: Counters::default(),
            reported: None,
            is_latched: false,
        }
    }

    /// Takes one input. Events and jobs that come of it are to be taken afterwards.
    pub fn handle(&mut self, input: Input<'a>) {
        match input {
            Input::Submit {
                id,
                request,
                resume,
            } => self.submit(id, request, resume),
            Input::Cancel { id } => self.drop_request(id),
            Input::Prepared { id, result } => self.prepared(id, result),
        }
    }

    /// What happened since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What is to be prepared since the last call, in order.
    pub fn take_jobs(&mut self) -> Vec<PrepareJob> {
        std::mem::take(&mut self.jobs)
    }

    /// Whether a step would compute anything.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.scheduler.has_work()
    }

    /// One step: a forward pass, then one token for every sequence that is due one.
    ///
    /// # Errors
    /// The core has latched: see [`Latch`].
    pub fn step(&mut self, now: Duration) -> Result<(), Latch> {
        if self.scheduler.has_work() {
            let plan = self.compute()?;
            self.counters.steps += 1;
            self.note_hits();
            self.draw(&plan);
        }
        self.report(now);
        Ok(())
    }

    /// Proves that pages and requests add up. For tests and after faults.
    ///
    /// # Errors
    /// The first page whose books do not balance.
    pub fn audit(&self) -> Result<(), AuditError> {
        self.scheduler.audit()
    }

    /// Scheduler of this core, for tests that force its hand.
    pub fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    /// What computes, for tests that look at what it holds.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    fn submit(&mut self, id: RequestId, request: Box<Request>, resume: Option<Resume>) {
        if self.requests.len() >= ENGINE_REQUESTS_MAX {
            let fault = Fault::Overloaded {
                resource: Overload::QueueFull,
                retry_after_s: RETRY_AFTER_S_MIN,
            };
            return self.events.push(Event::Rejected(Rejected {
                id,
                fault,
                report: None,
            }));
        }
        injected::meet(id, &request);
        // An id that is taken is a new attempt at the same request.
        self.drop_request(id);
        let is_stale = Arc::new(AtomicBool::new(false));
        let entry = Entry::Preparing {
            is_stale: Arc::clone(&is_stale),
            is_resumed: resume.is_some(),
        };
        self.requests.insert(id, entry);
        self.jobs.push(PrepareJob {
            id,
            request,
            resume,
            is_stale,
        });
    }

    fn prepared(&mut self, id: RequestId, result: Result<Prepared<'a>, Fault>) {
        let Some(Entry::Preparing { is_resumed, .. }) = self.requests.get(&id) else {
            // Cancelled meanwhile.
            return;
        };
        let is_resumed = *is_resumed;
        let tokens_max = self.scheduler.tokens_max();
        let started = result.and_then(|prepared| {
            contained(id, Phase::Admit, || Start::new(id, prepared, tokens_max))
        });
        match started {
            Ok(start) => self.start(id, start),
            Err(fault) => self.fail(id, fault, is_resumed),
        }
    }

    fn start(&mut self, id: RequestId, start: Start<'a>) {
        self.counters.prompt_tokens += start.new_prompt_tokens;
        self.events.extend(start.events);
        for sequence in start.sequences {
            self.scheduler.add(sequence);
        }
        self.requests.insert(id, Entry::Serving(start.serving));
        self.finish_if_complete(id);
    }

    fn finish_if_complete(&mut self, id: RequestId) {
        if let Some(Entry::Serving(serving)) = self.requests.get(&id)
            && serving.is_complete()
        {
            self.events.push(serving.finished());
            self.requests.remove(&id);
        }
    }

    /// The part of a step that all requests share. If it fails, the core latches.
    fn compute(&mut self) -> Result<StepPlan, Latch> {
        if std::mem::replace(&mut self.is_latched, true) {
            return Err(Latch::Latched);
        }
        // Nothing that a panic has left half done is used again: the core stays latched.
        let computed = catch_unwind(AssertUnwindSafe(|| self.shared_step()));
        let plan = computed.map_err(|_panic| Latch::Panicked)??;
        self.is_latched = false;
        Ok(plan)
    }

    fn shared_step(&mut self) -> Result<StepPlan, BackendError> {
        let plan = self.scheduler.plan(&self.backend);
        assert!(!plan.is_empty(), "there is work, but the step is empty");
        for copy in plan.copies() {
            self.backend
                .copy_page_prefix(copy.source, copy.target, copy.tokens);
        }
        let requests = || plan.parts().iter().map(|part| part.key.request);
        injected::shared(requests())?;
        let (backend, logits) = (&mut self.backend, &mut self.logits);
        plan.with_batch(|batch| backend.forward(batch, logits))?;
        let draws = plan.parts().iter().filter(|part| part.draws).count();
        assert_eq!(logits.len(), draws * backend.vocabulary());
        injected::confirm(requests());
        self.scheduler.confirm(&plan, &self.backend);
        Ok(plan)
    }

    fn note_hits(&mut self) {
        for (key, tokens) in self.scheduler.take_hits() {
            if let Some(Entry::Serving(serving)) = self.requests.get_mut(&key.request)
                && serving.note_hit(tokens)
            {
                self.counters.cached_tokens += tokens as u64;
            }
        }
    }

    /// Draws a token for every part of the step that is due one. Each is its request's
    /// private work: what goes wrong there ends that request only.
    fn draw(&mut self, plan: &StepPlan) {
        let vocabulary = self.backend.vocabulary().max(1);
        let mut logits = std::mem::take(&mut self.logits);
        let drawing = plan.parts().iter().filter(|part| part.draws);
        let rows = drawing.clone().map(|part| part.key.request);
        injected::spoil(&mut logits, vocabulary, rows);
        for (part, row) in drawing.zip(logits.chunks_exact_mut(vocabulary)) {
            // Failed earlier in this step, by another of its choices.
            if self.requests.contains_key(&part.key.request) {
                self.draw_one(part.key, row);
            }
        }
        self.logits = logits;
    }

    fn draw_one(&mut self, key: SequenceKey, logits: &mut [f32]) {
        let id = key.request;
        let Some(Entry::Serving(serving)) = self.requests.get_mut(&id) else {
            return;
        };
        let emitted = self.events.len();
        let events = &mut self.events;
        let drawn = contained(id, Phase::Sample, || {
            serving.draw(key.choice, logits, events)
        });
        match drawn {
            Ok(token) => {
                self.counters.generated_tokens += 1;
                if serving.is_open(key.choice) {
                    self.scheduler.push(key, token);
                } else {
                    self.scheduler.remove(key);
                }
                self.finish_if_complete(id);
            }
            Err(fault) => {
                // What the broken phase had half emitted must not get out.
                self.events.truncate(emitted);
                self.fail(id, fault, true);
            }
        }
    }

    /// Ends a request with a fault. Its pages and slots are free when this returns.
    fn fail(&mut self, id: RequestId, fault: Fault, was_accepted: bool) {
        let is_ours = matches!(
            fault,
            Fault::Internal { .. } | Fault::NonFiniteLogits | Fault::OutOfMemory
        );
        if is_ours {
            self.counters.contained_faults += 1;
            tracing::warn!(request = %id, %fault, "a request failed alone");
        }
        if fault == Fault::NonFiniteLogits {
            // The pages may be as broken as the logits, and full ones were sealed by this step.
            self.scheduler.discard_request(id);
        }
        self.drop_request(id);
        let rejected = Rejected {
            id,
            fault,
            report: None,
        };
        self.events.push(if was_accepted {
            Event::Failed(rejected)
        } else {
            Event::Rejected(rejected)
        });
    }

    fn drop_request(&mut self, id: RequestId) {
        if let Some(Entry::Preparing { is_stale, .. }) = self.requests.remove(&id) {
            is_stale.store(true, Ordering::Relaxed);
        }
        self.scheduler.remove_request(id);
    }

    /// Tells the numbers, if they changed, at most every `STATS_MS_MIN` and when going idle.
    fn report(&mut self, now: Duration) {
        let stats = self.stats();
        if let Some((when, last)) = self.reported {
            let is_early = now.saturating_sub(when) < Duration::from_millis(STATS_MS_MIN);
            if last == stats || (is_early && self.scheduler.has_work()) {
                return;
            }
        }
        self.reported = Some((now, stats));
        self.events.push(Event::Stats(stats));
    }

    fn stats(&self) -> Stats {
        let scheduler = self.scheduler.stats();
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let is_preparing = |entry: &&Entry<'_>| matches!(entry, Entry::Preparing { .. });
        let preparing = self.requests.values().filter(is_preparing).count();
        Stats {
            sequences_running: narrow(scheduler.running),
            sequences_waiting: narrow(scheduler.waiting + preparing),
            pages_used: narrow(scheduler.pages_used),
            pages_cached: narrow(scheduler.pages_cached),
            pages_total: narrow(scheduler.pages_total),
            steps_total: self.counters.steps,
            prompt_tokens_total: self.counters.prompt_tokens,
            cached_tokens_total: self.counters.cached_tokens,
            generated_tokens_total: self.counters.generated_tokens,
            preemptions_total: scheduler.preemptions_total,
            contained_faults_total: self.counters.contained_faults,
            audits_total: 0,
            audit_failures_total: 0,
            pages_adopted_total: scheduler.pages_adopted,
            pages_corrupt_total: scheduler.pages_corrupt,
        }
    }
}

#[cfg(test)]
mod tests;
