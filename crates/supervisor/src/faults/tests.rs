use super::*;

fn open(log: &mut FaultLog, now_ms: u64) -> FaultId {
    log.set_now(now_ms);
    log.open(FaultKind::Contained, "internal", "it broke".into())
}

#[test]
fn ids_read_as_they_are_written() {
    assert_eq!(FaultId(7).to_string(), "f7");
    assert_eq!("f7".parse(), Ok(FaultId(7)));
    for text in [
        "",
        "f",
        "7",
        "f-7",
        "f+7",
        "F7",
        "f7 ",
        "f99999999999999999999",
    ] {
        assert_eq!(text.parse::<FaultId>(), Err(NoFaultId), "{text:?}");
    }
}

#[test]
fn a_full_log_forgets_the_oldest_and_keeps_counting() {
    let mut log = FaultLog::default();
    let count = limits::FAULT_RECORDS_MAX as u64 + 3;
    for now_ms in 0..count {
        open(&mut log, now_ms);
    }
    let records = log.publish();
    assert_eq!(records.len(), limits::FAULT_RECORDS_MAX);
    assert_eq!(records[0].id, FaultId(4));
    assert_eq!(records.last().unwrap().id, FaultId(count));
    log.amend(FaultId(3), |_record| panic!("it is forgotten"));
    log.amend(FaultId(count + 1), |_record| panic!("it is not there yet"));
}

#[test]
fn a_timeline_counts_from_detection() {
    let mut log = FaultLog::default();
    log.set_epoch(1_000_000);
    let id = open(&mut log, 500);
    log.set_now(510);
    log.contained(id);
    log.set_now(700);
    log.engine_up();
    log.set_now(800);
    // A second death before the first token: the first record keeps its first engine.
    log.engine_up();
    log.set_now(900);
    log.token_committed();
    log.set_now(950);
    log.token_committed();
    let records = log.publish();
    assert_eq!(records[0].unix_ms, 1_000_500);
    let timeline = Timeline {
        contained_ms: Some(10),
        engine_up_ms: Some(200),
        resumed_ms: Some(400),
    };
    assert_eq!(records[0].timeline, timeline);
    assert!(records[0].is_over);
}

#[test]
fn a_fault_is_over_when_it_is_recovered_from_or_there_is_nothing_to_recover() {
    let mut log = FaultLog::default();
    let is_over = |log: &mut FaultLog| log.publish().last().unwrap().is_over;
    let id = open(&mut log, 0);
    log.contained(id);
    log.engine_up();
    assert!(!is_over(&mut log));
    log.nothing_to_resume();
    assert!(is_over(&mut log));
    let id = open(&mut log, 1);
    assert!(!is_over(&mut log));
    log.over(id);
    assert!(is_over(&mut log));
}

#[test]
fn readers_share_what_has_not_changed() {
    let mut log = FaultLog::default();
    let id = open(&mut log, 0);
    let first = log.publish();
    assert!(Arc::ptr_eq(&first, &log.publish()));
    open(&mut log, 1);
    let second = log.publish();
    assert!(Arc::ptr_eq(&first[0], &second[0]));
    log.contained(id);
    assert_eq!(
        first[0].timeline,
        Timeline::default(),
        "a reader's copy stays"
    );
    assert!(log.publish()[0].timeline.contained_ms.is_some());
}
