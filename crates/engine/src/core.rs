//! The engine without its threads and pipes: inputs in, events and jobs out, time as an
//! argument, one owner, no lock.
//!
//! ```text
//!   serving    a request at work
//!   step       one forward pass and what comes of it
//!   latch      the end of a core, and its successor
//! ```

mod latch;
mod serving;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relight_protocol::limits::{ENGINE_REQUESTS_MAX, RETRY_AFTER_S_MIN, STATS_MS_MIN};
use relight_protocol::recorder::Participant;
use relight_protocol::{
    Event, Fault, Latched, Overload, Phase, Rejected, Request, RequestId, Resume, Stats, StepCosts,
};
use serving::{Serving, Start};

use latch::Legacy;
pub use latch::SuccessionError;

use crate::backend::Backend;
use crate::containment::{PrivateFault, Task, contained};
use crate::cost::{CostModel, PRIVATE_MS, StepWork};
use crate::injected;
use crate::pace::Pace;
use crate::pages::{AuditError, PoolWitness};
use crate::prepare::Prepared;
use crate::row_times::RowTimes;
use crate::scheduler::{Scheduler, SchedulerConfig, StepKind};

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
        /// That of the job.
        attempt: u64,
        result: Result<Prepared<'a>, PrivateFault>,
    },
}

impl Input<'_> {
    fn id(&self) -> RequestId {
        match self {
            Self::Submit { id, .. } | Self::Cancel { id } | Self::Prepared { id, .. } => *id,
        }
    }
}

/// Work for the preparation thread.
#[derive(Debug)]
pub struct PrepareJob {
    pub id: RequestId,
    /// Tells jobs for the same request apart.
    pub attempt: u64,
    pub request: Box<Request>,
    pub resume: Option<Resume>,
    /// Set when nobody wants the result any more.
    pub is_stale: Arc<AtomicBool>,
}

/// A request that the engine has.
#[derive(Debug)]
enum Entry<'a> {
    /// At the preparation thread.
    Preparing {
        attempt: u64,
        is_stale: Arc<AtomicBool>,
        is_resumed: bool,
    },
    Serving(Serving<'a>),
}

/// See the module.
#[derive(Debug)]
pub struct Core<'a, B> {
    backend: B,
    config: SchedulerConfig,
    salt: u128,
    scheduler: Scheduler,
    /// Of the scheduler's pages.
    witness: PoolWitness,
    requests: BTreeMap<RequestId, Entry<'a>>,
    events: Vec<Event>,
    jobs: Vec<PrepareJob>,
    /// (rows that draw, vocabulary)
    logits: Vec<f32>,
    counters: Counters,
    costs: CostModel,
    pace: Pace,
    row_times: RowTimes,
    /// What the last step computed, until it is known how long that took.
    unmeasured: Option<Unmeasured>,
    reported: Option<(Duration, Stats)>,
    /// Why this core must not be used any more.
    latch: Option<Latched>,
}

/// A step of which it is not known how long it took.
#[derive(Clone, Copy, Debug)]
struct Unmeasured {
    work: StepWork,
    kind: StepKind,
}

/// What is counted from the start of the process on, across cores.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Begun, so one more than `steps` within a step and after a latch.
    steps_begun: u64,
    steps: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    generated_tokens: u64,
    drafted_tokens: u64,
    accepted_drafts: u64,
    contained_faults: u64,
    audits: u64,
    audit_failures: u64,
    /// These are counted by the scheduler: those of earlier cores.
    preemptions: u64,
    pages_adopted: u64,
    pages_corrupt: u64,
    /// Outside the forward pass.
    rest: Duration,
    /// The time of all forward passes when the last step was measured.
    forward_us: u64,
    attempts: u64,
    latches_in_a_row: u32,
}

impl<'a, B: Backend> Core<'a, B> {
    /// `salt` keeps pages of different models apart: the model's fingerprint.
    #[must_use]
    pub fn new(backend: B, config: SchedulerConfig, salt: u128) -> Self {
        Self::succeeding(Legacy {
            costs: CostModel::new(backend.parameter_count()),
            pace: Pace::default(),
            row_times: RowTimes::default(),
            backend,
            config,
            salt,
            counters: Counters::default(),
        })
    }

    /// Takes one input. Events and jobs that come of it are to be taken afterwards. A core
    /// that has latched refuses requests and ignores everything else.
    pub fn handle(&mut self, input: Input<'a>) {
        let id = input.id();
        if self.latch.is_some() {
            if let Input::Submit { .. } = input {
                self.reject(id, Fault::EngineUnavailable);
            }
            return;
        }
        let is_new = self.is_new(id);
        let suspect = Participant {
            request: id,
            is_new,
        };
        self.guarded(&[suspect], |core| match input {
            Input::Submit {
                id,
                request,
                resume,
            } => core.submit(id, request, resume),
            Input::Cancel { id } => core.drop_request(id),
            Input::Prepared {
                id,
                attempt,
                result,
            } => core.prepared((id, attempt), result),
        });
    }

    /// What happened since the last call, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What is to be prepared since the last call, in order.
    pub fn take_jobs(&mut self) -> Vec<PrepareJob> {
        std::mem::take(&mut self.jobs)
    }

    /// Whether a step would compute anything, or fail.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.latch.is_some() || self.scheduler.has_work()
    }

    /// Proves that pages and requests add up. For tests; the core does it after every fault.
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
            return self.reject(id, fault);
        }
        injected::meet(id, &request);
        // An id that is taken is a new attempt at the same request.
        self.drop_request(id);
        self.counters.attempts += 1;
        let attempt = self.counters.attempts;
        let is_stale = Arc::new(AtomicBool::new(false));
        let entry = Entry::Preparing {
            attempt,
            is_stale: Arc::clone(&is_stale),
            is_resumed: resume.is_some(),
        };
        self.requests.insert(id, entry);
        self.jobs.push(PrepareJob {
            id,
            attempt,
            request,
            resume,
            is_stale,
        });
    }

    fn reject(&mut self, id: RequestId, fault: Fault) {
        self.events.push(Event::Rejected(Rejected {
            id,
            fault,
            report: None,
        }));
    }

    fn prepared(
        &mut self,
        (id, attempt): (RequestId, u64),
        result: Result<Prepared<'a>, PrivateFault>,
    ) {
        let is_resumed = match self.requests.get(&id) {
            Some(Entry::Preparing {
                attempt: current,
                is_resumed,
                ..
            }) if *current == attempt => *is_resumed,
            // Cancelled or submitted again meanwhile.
            Some(_) | None => return,
        };
        let tokens_max = self.scheduler.tokens_max();
        let task = private(id, Phase::Admit);
        let started =
            result.and_then(|prepared| contained(task, || Start::new(id, prepared, tokens_max)));
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

    /// Ends a request with a fault. Its pages and slots are free when this returns.
    fn fail(&mut self, id: RequestId, cause: PrivateFault, was_accepted: bool) {
        let PrivateFault { fault, report } = cause;
        let is_ours = matches!(
            fault,
            Fault::Internal { .. } | Fault::NonFiniteLogits | Fault::OutOfMemory
        );
        if fault == Fault::NonFiniteLogits {
            // The pages may be as broken as the logits, and full ones were sealed by this step.
            self.scheduler.discard_request(id);
        }
        let is_new = self.is_new(id);
        self.drop_request(id);
        if is_ours {
            self.counters.contained_faults += 1;
            tracing::warn!(request = %id, %fault, "a request failed alone");
            self.audit_after_fault(id, is_new);
        }
        let rejected = Rejected { id, fault, report };
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
            drafted_tokens_total: self.counters.drafted_tokens,
            accepted_drafts_total: self.counters.accepted_drafts,
            preemptions_total: self.counters.preemptions + scheduler.preemptions_total,
            contained_faults_total: self.counters.contained_faults,
            audits_total: self.counters.audits,
            audit_failures_total: self.counters.audit_failures,
            pages_adopted_total: self.counters.pages_adopted + scheduler.pages_adopted,
            pages_corrupt_total: self.counters.pages_corrupt + scheduler.pages_corrupt,
            costs: StepCosts {
                rest_us: u64::try_from(self.counters.rest.as_micros()).unwrap_or(u64::MAX),
                ..self.backend.costs()
            },
        }
    }
}

/// Private work of the generator.
fn private(request: RequestId, phase: Phase) -> Task {
    Task {
        request,
        phase,
        predicted_ms: PRIVATE_MS,
    }
}

#[cfg(test)]
mod tests;
