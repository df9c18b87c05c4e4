use super::*;

const REQUEST: RequestId = RequestId(7);

fn task(phase: Phase) -> Task {
    Task {
        request: REQUEST,
        phase,
        predicted_ms: 3,
    }
}

#[test]
fn a_panic_becomes_a_fault_that_names_the_phase_it_had_come_to() {
    let result: Result<(), PrivateFault> = contained(task(Phase::Sample), || {
        enter(Phase::Detokenize);
        panic!("broken");
    });
    let phase = Phase::Detokenize;
    assert_eq!(result.unwrap_err().fault, Fault::Internal { phase });
    assert!(AT_WORK.get().is_none());
}

#[test]
fn an_error_stays_what_it_is() {
    let result: Result<(), PrivateFault> =
        contained(task(Phase::Sample), || Err(Fault::NonFiniteLogits));
    assert_eq!(result, Err(Fault::NonFiniteLogits.into()));
    assert_eq!(contained(task(Phase::Sample), || Ok(1)), Ok(1));
}

#[test]
fn a_payload_that_panics_when_dropped_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let result: Result<(), PrivateFault> =
        contained(task(Phase::Emit), || std::panic::panic_any(Bomb));
    let phase = Phase::Emit;
    assert_eq!(result.unwrap_err().fault, Fault::Internal { phase });
}

#[test]
fn a_report_says_where_on_which_thread_and_for_whom_it_panicked() {
    report::keep_reports_in_tests();
    let work = || {
        let result: Result<(), PrivateFault> = contained(task(Phase::Sample), || {
            enter(Phase::Emit);
            panic!("broken");
        });
        result.unwrap_err().report.unwrap()
    };
    let thread = std::thread::Builder::new().name("worker-7".to_owned());
    let report = thread.spawn(work).unwrap().join().unwrap();
    let mut lines = report.lines();
    assert_eq!(lines.next(), Some("broken"));
    let place = lines.next().unwrap();
    assert!(place.contains("containment/tests.rs:"), "{place}");
    assert!(
        place.ends_with("thread worker-7, Emit of request r7"),
        "{place}"
    );
}

#[test]
fn what_is_half_done_may_panic_when_it_is_dropped() {
    struct HalfDone;
    impl Drop for HalfDone {
        fn drop(&mut self) {
            panic!("half done");
        }
    }
    assert!(!drop_quietly(vec![HalfDone]));
    assert!(drop_quietly(vec![7]));
}
