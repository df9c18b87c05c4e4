//! The request rung: what one request does on its own runs behind a boundary, and a panic
//! or an error there ends that request only.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use relight_protocol::{Fault, Phase, RequestId};

use crate::{injected, recording, report};

thread_local! {
    /// The private work that this thread is doing, and how far it is.
    static AT_WORK: Cell<Option<Task>> = const { Cell::new(None) };
}

/// Private work of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) request: RequestId,
    pub(crate) phase: Phase,
    /// How long each of its phases should take, for the watchdog.
    pub(crate) predicted_ms: u64,
}

/// Why a request ends alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFault {
    pub fault: Fault,
    /// What panicked where, if it was a panic.
    pub report: Option<String>,
}

impl From<Fault> for PrivateFault {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            report: None,
        }
    }
}

/// Says that the private work of this thread has come to `phase`.
pub(crate) fn enter(phase: Phase) {
    if let Err(fault) = arrive(phase) {
        tracing::debug!(%fault, ?phase, "an ordered fault is of no use here");
    }
}

/// Only a fault on order is an error here.
fn arrive(phase: Phase) -> Result<(), Fault> {
    let Some(task) = AT_WORK.get() else {
        return Ok(());
    };
    AT_WORK.set(Some(Task { phase, ..task }));
    recording::private(task.request, phase, task.predicted_ms);
    #[cfg(test)]
    planned::strike(task.request, phase);
    injected::private(phase, task.request)
}

/// Does private work of a request.
///
/// # Errors
/// The work's own fault, or `Internal` with the phase it had come to when it panicked.
/// Whatever the work had borrowed mutably must be dropped then.
pub(crate) fn contained<T>(
    task: Task,
    work: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, PrivateFault> {
    AT_WORK.set(Some(task));
    report::watch();
    // The callers drop the request's state on any error, so nothing that a panic has left
    // half done is used again.
    let result = catch_unwind(AssertUnwindSafe(|| {
        arrive(task.phase)?;
        work()
    }));
    let reached = AT_WORK.replace(None).unwrap_or(task);
    recording::idle();
    match result {
        Ok(result) => {
            report::unwatch();
            result.map_err(PrivateFault::from)
        }
        Err(panic) => {
            let report = report::take();
            drop_quietly(panic);
            let phase = reached.phase;
            let fault = Fault::Internal { phase };
            Err(PrivateFault { fault, report })
        }
    }
}

/// Drops what may itself panic when it is dropped: the payload of a panic, or state that a
/// panic has left half done. Returns whether it did not.
pub(crate) fn drop_quietly<T>(value: T) -> bool {
    // The value is gone either way, and nothing else was touched.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(value)));
    let is_clean = dropped.is_ok();
    if let Err(second) = dropped {
        std::mem::forget::<Box<dyn Any + Send>>(second);
    }
    is_clean
}

/// Makes every panic of the process leave a report, and a line in the log that says where it
/// happened and for whom.
pub(crate) fn keep_reports() {
    report::keep_reports(at_work);
}

/// Whose private work this thread is doing, and how far it is.
pub(crate) fn at_work() -> Option<(RequestId, Phase)> {
    AT_WORK.get().map(|task| (task.request, task.phase))
}

/// Panics on demand, for tests.
#[cfg(test)]
pub(crate) mod planned {
    use std::cell::RefCell;

    use super::{Phase, RequestId};

    thread_local! {
        static PLAN: RefCell<Vec<(RequestId, Phase, u32)>> = const { RefCell::new(Vec::new()) };
    }

    /// The `skip + 1`th time this thread enters `phase` for `request`, it panics.
    pub(crate) fn panic_at(request: RequestId, phase: Phase, skip: u32) {
        PLAN.with_borrow_mut(|plan| plan.push((request, phase, skip)));
    }

    /// Forgets all plans.
    pub(crate) fn clear() {
        PLAN.with_borrow_mut(Vec::clear);
    }

    pub(super) fn strike(request: RequestId, phase: Phase) {
        let strikes = PLAN.with_borrow_mut(|plan| {
            let index = plan
                .iter()
                .position(|(who, place, _skip)| (*who, *place) == (request, phase))?;
            if plan[index].2 == 0 {
                plan.remove(index);
                Some(())
            } else {
                plan[index].2 -= 1;
                None
            }
        });
        assert!(strikes.is_none(), "injected into {phase:?} of {request}");
    }
}

#[cfg(test)]
mod tests;
