//! The generator rung: a core whose shared state cannot be trusted any more is dropped as a
//! whole, and another one is built on what it leaves.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use relight_protocol::limits::LATCHES_IN_A_ROW_MAX;
use relight_protocol::recorder::Participant;
use relight_protocol::{LatchCause, Latched, RequestId};

use super::{Core, Counters, Entry};
use crate::backend::Backend;
use crate::containment::drop_quietly;
use crate::cost::CostModel;
use crate::pace::Pace;
use crate::pages::PageStore;
use crate::report;
use crate::row_times::RowTimes;
use crate::scheduler::{Scheduler, SchedulerConfig};

/// What a core leaves to its successor: nothing that a failed step has written.
#[derive(Debug)]
pub(super) struct Legacy<B> {
    pub(super) backend: B,
    pub(super) config: SchedulerConfig,
    pub(super) salt: u128,
    pub(super) counters: Counters,
    pub(super) costs: CostModel,
    pub(super) pace: Pace,
    pub(super) row_times: RowTimes,
}

/// Why a core cannot have a successor, so that the process has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuccessionError {
    /// Another core on the same memory could not be trusted.
    #[error("pages of the latched generator are still held {holders} times")]
    StillHeld { holders: usize },
    /// The fault is not one that a new core cures.
    #[error("the generator has latched {latches} times without a step between")]
    Incurable { latches: u32 },
}

impl<B: Backend> Core<'_, B> {
    /// Ends the core, and only then builds another one on the same weights and memory, without
    /// requests. Of the pages those are there that outlive an engine and were sealed.
    ///
    /// # Errors
    /// See [`SuccessionError`].
    pub fn renewed(mut self) -> Result<Self, SuccessionError> {
        self.counters.latches_in_a_row += 1;
        let latches = self.counters.latches_in_a_row;
        if latches > LATCHES_IN_A_ROW_MAX {
            return Err(SuccessionError::Incurable { latches });
        }
        let mut core = Self::succeeding(self.dismantle()?);
        core.audit_or_latch(Vec::new());
        Ok(core)
    }

    pub(super) fn succeeding(legacy: Legacy<B>) -> Self {
        let Legacy {
            backend,
            config,
            salt,
            counters,
            costs,
            pace,
            row_times,
        } = legacy;
        let store = PageStore::adopt(backend.page_count(), salt, &backend);
        Self {
            backend,
            config,
            salt,
            witness: store.witness(),
            scheduler: Scheduler::new(config, store),
            requests: BTreeMap::new(),
            events: Vec::new(),
            jobs: Vec::new(),
            logits: Vec::new(),
            counters,
            costs,
            pace,
            row_times,
            unmeasured: None,
            reported: None,
            latch: None,
        }
    }

    /// Lets go of all requests, sequences and pages. A closed core refuses requests; closing
    /// it again changes nothing.
    pub fn close(&mut self) {
        self.latch.get_or_insert_with(|| Latched {
            cause: LatchCause::Failed,
            participants: Vec::new(),
            report: Some("the generator was closed".to_owned()),
        });
        for entry in self.requests.values() {
            if let Entry::Preparing { is_stale, .. } = entry {
                is_stale.store(true, Ordering::Relaxed);
            }
        }
        self.jobs.clear();
        let ended = self.scheduler.stats();
        self.counters.preemptions += ended.preemptions_total;
        self.counters.pages_adopted += ended.pages_adopted;
        self.counters.pages_corrupt += ended.pages_corrupt;
        let nothing = Scheduler::new(self.config, PageStore::empty(self.salt));
        let scheduler = std::mem::replace(&mut self.scheduler, nothing);
        let requests = std::mem::take(&mut self.requests);
        // State that a panic has left half done may panic once more.
        let is_clean = drop_quietly(scheduler) & drop_quietly(requests);
        if !is_clean {
            tracing::error!("the latched generator panicked while it was dropped");
        }
    }

    /// Ends the core, and returns once nothing of it is left but its legacy.
    fn dismantle(mut self) -> Result<Legacy<B>, SuccessionError> {
        self.close();
        let Self {
            mut backend,
            config,
            salt,
            counters,
            costs,
            pace,
            row_times,
            witness,
            ..
        } = self;
        let holders = witness.holder_count();
        if holders > 0 {
            return Err(SuccessionError::StillHeld { holders });
        }
        backend.reset();
        Ok(Legacy {
            backend,
            config,
            salt,
            counters,
            costs,
            pace,
            row_times,
        })
    }

    /// Does work that may touch what all requests share. A panic there latches.
    pub(super) fn guarded(&mut self, suspects: &[Participant], work: impl FnOnce(&mut Self)) {
        report::watch_workers();
        // Nothing that a panic has left half done is used again: the core latches.
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        if let Err(panic) = done {
            let report = report::take_of_workers();
            drop_quietly(panic);
            self.latch_with(LatchCause::Panicked, suspects.to_vec(), report);
        }
        report::unwatch();
    }

    /// Takes this core out of service.
    pub(super) fn latch_with(
        &mut self,
        cause: LatchCause,
        participants: Vec<Participant>,
        report: Option<String>,
    ) -> Latched {
        let latched = Latched {
            cause,
            participants,
            report,
        };
        self.latch.get_or_insert(latched).clone()
    }

    /// Proves after a fault of `culprit` that its slots and pages came back; if not, the core
    /// latches.
    pub(super) fn audit_after_fault(&mut self, request: RequestId, is_new: bool) {
        let participant = Participant { request, is_new };
        self.audit_or_latch(vec![participant]);
    }

    /// A core that has just been built has no suspects.
    fn audit_or_latch(&mut self, suspects: Vec<Participant>) {
        self.counters.audits += 1;
        report::watch();
        // An audit changes nothing, and after a panic in it the core latches.
        let audited = catch_unwind(AssertUnwindSafe(|| self.audit()));
        let report = match audited {
            Ok(Ok(())) => return report::unwatch(),
            Ok(Err(error)) => {
                report::unwatch();
                Some(error.to_string())
            }
            Err(panic) => {
                drop_quietly(panic);
                report::take()
            }
        };
        self.counters.audit_failures += 1;
        tracing::error!(report, "pages and slots do not add up");
        self.latch_with(LatchCause::AuditFailed, suspects, report);
    }
}
