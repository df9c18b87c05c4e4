//! What a panic leaves for the record of its fault: message, place and the way there. The
//! hook writes it down where the panic starts; whoever catches the panic takes it.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};

use relight_protocol::limits::REPORT_BYTES_MAX;
use relight_protocol::{Phase, RequestId};

thread_local! {
    /// Whether a boundary on this thread will ask for the report.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static REPORT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The first panic since the last look on a thread without a boundary: a worker of the step,
/// whose panic is handed on to the generator without passing its hook.
static ELSEWHERE: Mutex<Option<String>> = Mutex::new(None);

/// A boundary on this thread is entered: what earlier panics have left is forgotten.
pub(crate) fn watch() {
    IS_WATCHED.set(true);
    REPORT.set(None);
}

/// The boundary is left without a panic.
pub(crate) fn unwatch() {
    IS_WATCHED.set(false);
}

/// The boundary has caught a panic of this thread.
pub(crate) fn take() -> Option<String> {
    unwatch();
    REPORT.take()
}

/// A step on all workers begins.
pub(crate) fn watch_workers() {
    watch();
    take_elsewhere();
}

/// The step has panicked, on this thread or on a worker.
pub(crate) fn take_of_workers() -> Option<String> {
    take().or_else(take_elsewhere)
}

fn take_elsewhere() -> Option<String> {
    // A panic cannot leave the slot half written.
    let mut elsewhere = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    elsewhere.take()
}

/// Makes every panic of the process leave a report, and a line in the log that says where it
/// happened and for whom.
pub(crate) fn keep_reports(at_work: fn() -> Option<(RequestId, Phase)>) {
    std::panic::set_hook(Box::new(move |panic| {
        let at_work = at_work();
        keep(describe(panic, at_work));
        log(panic, at_work);
    }));
}

/// What a panic looks like, within the bound for reports.
fn describe(panic: &PanicHookInfo<'_>, at_work: Option<(RequestId, Phase)>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = place_of(panic);
    let whose = at_work.map_or(String::new(), |(request, phase)| {
        format!(", {phase:?} of request {request}")
    });
    let way = Backtrace::force_capture().to_string();
    let way = beyond_the_hook(&way);
    cut(format!(
        "{message}\nat {place}, thread {thread}{whose}\n{way}"
    ))
}

/// A backtrace without the frames of the panic itself, which take much of the bound.
fn beyond_the_hook(way: &str) -> &str {
    let mut rest = way;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if line.contains("rust_begin_unwind") {
            return rest;
        }
    }
    way
}

fn place_of(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map(ToString::to_string);
    place.unwrap_or_else(|| "unknown place".to_owned())
}

/// The start of a report, as far as reports go.
pub(crate) fn cut(mut report: String) -> String {
    report.truncate(report.floor_char_boundary(REPORT_BYTES_MAX));
    report
}

fn keep(report: String) {
    // A thread that is ending has no place for it, and nobody who would ask.
    let is_watched = IS_WATCHED.try_with(Cell::get).unwrap_or(false);
    if is_watched {
        REPORT.set(Some(report));
    } else {
        let mut elsewhere = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
        elsewhere.get_or_insert(report);
    }
}

fn log(panic: &PanicHookInfo<'_>, at_work: Option<(RequestId, Phase)>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed").to_owned();
    let place = place_of(panic);
    let message = panic.payload_as_str().unwrap_or("no message");
    match at_work {
        Some((request, phase)) => {
            tracing::error!(%request, ?phase, thread, place, "panic: {message}");
        }
        None => tracing::error!(thread, place, "panic: {message}"),
    }
}

/// As [`keep_reports`], but panics of failing tests are still shown.
#[cfg(test)]
pub(crate) fn keep_reports_in_tests() {
    use std::sync::Once;

    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            keep(describe(panic, crate::containment::at_work()));
            shown(panic);
        }));
    });
}

#[cfg(test)]
mod tests;
