//! What the engine notes is what the supervisor reads, whatever else lies in the memory.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::{Activity, Doing, LANE_WORDS, LaneWriter, Participant};
use crate::limits::SLOTS_MAX;
use crate::{Phase, RequestId};

fn lane() -> Box<[AtomicU64; LANE_WORDS]> {
    Box::new([const { AtomicU64::new(0) }; LANE_WORDS])
}

fn bytes(lane: &[AtomicU64; LANE_WORDS]) -> Vec<u8> {
    let words = lane.iter().map(|word| word.load(Ordering::Relaxed));
    words.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn a_new_lane_is_idle() {
    assert_eq!(Activity::decode(&bytes(&lane())), Activity::default());
    assert_eq!(Activity::decode(&[]), Activity::default());
}

#[test]
fn a_private_phase_names_its_request() {
    let lane = lane();
    let writer = LaneWriter::new(&lane);
    writer.private(RequestId(9), Phase::Detokenize, 3);
    let read = Activity::decode(&bytes(&lane));
    let (request, phase) = (RequestId(9), Phase::Detokenize);
    assert_eq!(read.doing, Doing::Private { request, phase });
    assert_eq!((read.changes, read.predicted_ms), (2, 3));
    writer.idle();
    assert_eq!(Activity::decode(&bytes(&lane)).doing, Doing::Idle);
}

#[test]
fn a_lane_that_a_dead_writer_left_torn_is_whole_after_the_next_note() {
    let lane = lane();
    lane[0].store(7, Ordering::Relaxed);
    assert!(Activity::decode(&bytes(&lane)).is_torn());
    LaneWriter::new(&lane).idle();
    assert_eq!(Activity::decode(&bytes(&lane)).changes, 8);
}

proptest! {
    #[test]
    fn a_shared_step_names_everybody(ids in prop::collection::vec((0..u64::MAX / 2, any::<bool>()), 0..SLOTS_MAX)) {
        let lane = lane();
        let participants: Vec<Participant> = ids
            .iter()
            .map(|(id, is_new)| Participant { request: RequestId(*id), is_new: *is_new })
            .collect();
        LaneWriter::new(&lane).shared(5, 40, participants.iter().copied());
        let read = Activity::decode(&bytes(&lane));
        prop_assert_eq!((read.step, read.predicted_ms, read.changes), (5, 40, 2));
        prop_assert_eq!(read.doing, Doing::Shared { participants });
    }

    #[test]
    fn rubbish_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let read = Activity::decode(&bytes);
        prop_assert_eq!(read, Activity::decode(&bytes));
    }
}
