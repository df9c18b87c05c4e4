//! The request rung: what one request does on its own runs behind a boundary, and a panic
//! or an error there ends that request only.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use relight_protocol::{Fault, Phase, RequestId};

use crate::injected;

thread_local! {
    /// The request whose private work this thread is doing, and how far it is.
    static AT_WORK: Cell<Option<(RequestId, Phase)>> = const { Cell::new(None) };
}

/// Says that the private work of this thread has come to `phase`.
pub(crate) fn enter(phase: Phase) {
    if let Err(fault) = arrive(phase) {
        tracing::debug!(%fault, ?phase, "an ordered fault is of no use here");
    }
}

/// Only a fault on order is an error here.
fn arrive(phase: Phase) -> Result<(), Fault> {
    let Some((request, _phase)) = AT_WORK.get() else {
        return Ok(());
    };
    AT_WORK.set(Some((request, phase)));
    #[cfg(test)]
    planned::strike(request, phase);
    injected::private(phase, request)
}

/// Does private work of `request`, starting in `phase`.
///
/// # Errors
/// The work's own fault, or `Internal` with the phase it had come to when it panicked.
/// Whatever the work had borrowed mutably must be dropped then.
pub(crate) fn contained<T>(
    request: RequestId,
    phase: Phase,
    work: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    AT_WORK.set(Some((request, phase)));
    // The callers drop the request's state on any error, so nothing that a panic has left
    // half done is used again.
    let result = catch_unwind(AssertUnwindSafe(|| {
        arrive(phase)?;
        work()
    }));
    let reached = AT_WORK
        .replace(None)
        .map_or(phase, |(_request, phase)| phase);
    result.unwrap_or_else(|panic| {
        drop_quietly(panic);
        Err(Fault::Internal { phase: reached })
    })
}

/// A panic's payload may itself panic when it is dropped.
fn drop_quietly(panic: Box<dyn Any + Send>) {
    // The payload is gone either way, and nothing else was touched.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    if let Err(second) = dropped {
        std::mem::forget(second);
    }
}

/// Makes every panic of the process leave a line in the log that says where it happened and
/// for whom.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed").to_owned();
    let place = panic.location().map(ToString::to_string);
    let place = place.as_deref().unwrap_or("unknown place");
    let message = panic.payload_as_str().unwrap_or("no message");
    match AT_WORK.get() {
        Some((request, phase)) => {
            tracing::error!(%request, ?phase, thread, place, "panic: {message}");
        }
        None => tracing::error!(thread, place, "panic: {message}"),
    }
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
