//! `invariant!`: a check that may not kill the process that must not die. A breach is a bug
//! of ours: it is logged and counted, and the caller takes the safe branch.

use std::sync::atomic::{AtomicU64, Ordering};

static BREACHES: AtomicU64 = AtomicU64::new(0);

/// Counts one breach.
pub(crate) fn breach() {
    BREACHES.fetch_add(1, Ordering::Relaxed);
}

/// Breaches since the process started.
pub(crate) fn breaches() -> u64 {
    BREACHES.load(Ordering::Relaxed)
}

/// Evaluates to whether the condition holds; if not, says so in the log.
macro_rules! invariant {
    ($condition:expr, $($message:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            $crate::invariant::breach();
            tracing::error!(condition = stringify!($condition), $($message)+);
        }
        holds
    }};
}

pub(crate) use invariant;
