use super::*;

#[test]
fn want_of_memory_halves_what_an_engine_gets_but_never_to_nothing() {
    let mut admission = Admission::new(1024);
    admission.out_of_memory(9, 0);
    assert_eq!(admission.limit(), 4);
    admission.out_of_memory(4, 0);
    admission.out_of_memory(2, 0);
    admission.out_of_memory(1, 0);
    assert_eq!(admission.limit(), 1);
}

#[test]
fn the_limit_rises_by_one_per_minute_up_to_the_slots_and_then_in_full() {
    let mut admission = Admission::new(1024);
    assert!(
        !admission.pass_time(ADMISSION_RAISE_MS, 8),
        "nothing to raise"
    );
    admission.out_of_memory(12, 1000);
    assert!(!admission.pass_time(1000 + ADMISSION_RAISE_MS - 1, 8));
    assert!(admission.pass_time(1000 + ADMISSION_RAISE_MS, 8));
    assert_eq!(admission.limit(), 7);
    assert!(!admission.pass_time(1001 + ADMISSION_RAISE_MS, 8));
    admission.out_of_memory(7, 2000 + ADMISSION_RAISE_MS);
    assert_eq!(admission.limit(), 3);
    let mut now_ms = 2000 + ADMISSION_RAISE_MS;
    for expected in [4, 5, 6, 7, 1024] {
        now_ms += ADMISSION_RAISE_MS;
        assert!(admission.pass_time(now_ms, 8));
        assert_eq!(admission.limit(), expected);
    }
}
