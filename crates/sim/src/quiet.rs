//! Panics that a run causes on purpose leave no mark on the terminal; all others do.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

static INSTALLED: Once = Once::new();

/// Runs the engine's code, whose panics are expected and caught within it.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    INSTALLED.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_EXPECTED.get() {
                loud(panic);
            }
        }));
    });
    IS_EXPECTED.set(true);
    let result = work();
    IS_EXPECTED.set(false);
    result
}
