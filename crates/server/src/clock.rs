//! The wall clock, which only stamps what clients see; every wait uses tokio's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "answers carry the date at which they were made"
)]
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

/// A date of ISO 8601 in UTC, e.g. `2026-01-31T07:05:09Z`.
pub(crate) fn iso_date(unix_seconds: u64) -> String {
    let (days, second) = (
        unix_seconds / SECONDS_PER_DAY,
        unix_seconds % SECONDS_PER_DAY,
    );
    // Gregorian years of 400-year eras that begin in March, so that leap days come last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let (month, next_year) = if march_month < 10 {
        (march_month + 3, 0)
    } else {
        (march_month - 9, 1)
    };
    let year = era * 400 + year_of_era + next_year;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests;
