use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[test]
fn a_report_tells_message_place_and_way_within_its_bound() {
    keep_reports_in_tests();
    watch();
    let long = "é".repeat(10);
    let caught = catch_unwind(AssertUnwindSafe(|| panic!("broken {long}")));
    assert!(caught.is_err());
    let report = take().unwrap();
    assert!(report.starts_with("broken éé"), "{report}");
    assert!(report.contains("report/tests.rs:"), "{report}");
    assert!(report.contains("a_report_tells_message_place_and_way"));
    assert!(!report.contains("keep_reports_in_tests"), "{report}");
    assert_eq!(take(), None);
}

#[test]
fn a_long_report_is_cut_between_characters() {
    for extra in 0..3 {
        let report = cut("x".repeat(extra) + &"é".repeat(REPORT_BYTES_MAX));
        assert!(report.len() <= REPORT_BYTES_MAX);
        assert!(report.len() >= REPORT_BYTES_MAX - 1);
    }
}
