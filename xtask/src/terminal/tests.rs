use super::*;

fn tally(passed: usize, failed: usize) -> Option<Tally> {
    Some(Tally { passed, failed })
}

#[test]
fn closing_lines_of_both_kinds_are_counted() {
    let cargo = "test result: ok. 11 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s";
    assert_eq!(Tally::of_line(cargo), tally(11, 2));
    assert_eq!(
        Tally::of_line("test result: FAILED. 3 passed; 1 failed; 0 ignored"),
        tally(3, 1)
    );
    assert_eq!(Tally::of_line("19 passed, 0 failed"), tally(19, 0));
    assert_eq!(Tally::of_line("running 11 tests"), None);
    assert_eq!(Tally::of_line("ok three_passed, none failed"), None);
}

#[test]
fn a_command_that_fails_without_a_count_is_one_failure() {
    let silent = run_tests(Command::new("sh").args(["-c", "exit 3"])).unwrap();
    assert_eq!(Some(silent), tally(0, 1));
    let counted =
        run_tests(Command::new("sh").args(["-c", "echo '4 passed, 2 failed'; exit 1"])).unwrap();
    assert_eq!(Some(counted), tally(4, 2));
}
