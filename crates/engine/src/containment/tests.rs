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
