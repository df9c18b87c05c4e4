use super::*;

#[test]
fn dates_follow_the_gregorian_calendar() {
    assert_eq!(iso_date(0), "1970-01-01T00:00:00Z");
    assert_eq!(iso_date(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(iso_date(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(iso_date(1_709_251_199), "2024-02-29T23:59:59Z");
    assert_eq!(iso_date(1_798_761_599), "2026-12-31T23:59:59Z");
    assert_eq!(iso_date(4_107_542_400), "2100-03-01T00:00:00Z");
}
