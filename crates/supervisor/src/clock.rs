//! The clocks of the shell; cores are handed the time.
#![expect(clippy::disallowed_methods, reason = "a shell reads the clocks")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, which all waits and ages are measured on.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall clock in milliseconds since 1970, which only stamps records.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX)
}
