use super::format_time;

fn check(unix_seconds: i64, format: &str, expected: Option<&str>) {
    assert_eq!(
        format_time(unix_seconds, format).as_deref(),
        expected,
        "{unix_seconds} {format}"
    );
}

/// The expected texts are those of C's `strftime` for the same seconds in UTC.
#[test]
fn moments_are_written_as_strftime_writes_them() {
    check(
        0,
        "%Y-%m-%d %H:%M:%S %A",
        Some("1970-01-01 00:00:00 Thursday"),
    );
    check(951_782_399, "%d %b %Y %j", Some("28 Feb 2000 059"));
    check(951_782_400, "%d %B %Y %a", Some("29 February 2000 Tue"));
    check(1_709_164_800, "%F %T %y", Some("2024-02-29 00:00:00 24"));
    check(
        1_735_689_599,
        "%d %b %Y %I:%M %p",
        Some("31 Dec 2024 11:59 PM"),
    );
    check(
        1_796_036_400,
        "%A, %B %-d, %Y at %R %Z%z",
        Some("Monday, November 30, 2026 at 11:00 UTC+0000"),
    );
    check(4_102_444_800, "100%% %e", Some("100%  1"));
}

#[test]
fn unknown_directives_and_times_are_refused() {
    check(0, "%Q", None);
    check(0, "%", None);
    check(-1, "%Y", None);
    check(i64::MAX, "%Y", None);
}
