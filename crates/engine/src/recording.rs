//! What a thread of the engine notes in the flight recorder before it acts. A thread without
//! a lane notes nothing.

use std::cell::RefCell;
use std::sync::Arc;

use relight_protocol::recorder::{Lane, LaneWriter, Participant};
use relight_protocol::{Phase, RequestId};

use crate::arena::Recorder;

thread_local! {
    static LANE: RefCell<Option<(Arc<Recorder>, Lane)>> = const { RefCell::new(None) };
}

/// While this lives, its thread writes a lane.
#[derive(Debug)]
pub struct LaneUse {
    /// A lane belongs to a thread.
    not_send: std::marker::PhantomData<*const ()>,
}

impl LaneUse {
    /// No other thread may be writing `lane` of `recorder`.
    #[must_use]
    pub fn new(recorder: Arc<Recorder>, lane: Lane) -> Self {
        LANE.set(Some((recorder, lane)));
        idle();
        Self {
            not_send: std::marker::PhantomData,
        }
    }
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        idle();
        LANE.set(None);
    }
}

/// Nothing is being done, or nothing that takes time.
pub(crate) fn idle() {
    write(|lane| lane.idle());
}

/// A forward pass begins.
pub(crate) fn shared(step: u64, predicted_ms: u64, participants: &[Participant]) {
    write(|lane| lane.shared(step, predicted_ms, participants.iter().copied()));
}

/// Work for one request begins, or comes to another phase.
pub(crate) fn private(request: RequestId, phase: Phase, predicted_ms: u64) {
    write(|lane| lane.private(request, phase, predicted_ms));
}

fn write(note: impl FnOnce(&LaneWriter<'_>)) {
    LANE.with_borrow(|lane| {
        let lane = lane.as_ref();
        if let Some(lane) = lane.and_then(|(recorder, lane)| recorder.lane(*lane)) {
            note(&lane);
        }
    });
}
