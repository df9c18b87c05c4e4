//! What the supervisor reads of the flight recorder.

use relight_protocol::recorder::{Activity, Doing, Participant};
use relight_protocol::{Phase, recorder};

use crate::faults::phase_word;

/// What both threads of an engine were at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    pub generator: Activity,
    pub prepare: Activity,
}

impl Lanes {
    /// Reads the whole recorder, `RECORDER_BYTES` long.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let lane = |lane: recorder::Lane| {
            let bytes = bytes.get(lane.offset()..).unwrap_or_default();
            Activity::decode(bytes)
        };
        Self {
            generator: lane(recorder::Lane::Generator),
            prepare: lane(recorder::Lane::Prepare),
        }
    }

    /// Whether a lane was caught between two activities, so that nothing can be made of it.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.generator.is_torn() || self.prepare.is_torn()
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        [&self.generator, &self.prepare]
            .iter()
            .all(|lane| lane.doing == Doing::Idle)
    }

    /// Everybody whose work was being done.
    #[must_use]
    pub fn participants(&self) -> Vec<Participant> {
        let mut participants = Vec::new();
        for lane in [&self.generator, &self.prepare] {
            match &lane.doing {
                Doing::Idle => {}
                Doing::Shared {
                    participants: shared,
                } => participants.extend(shared),
                Doing::Private { request, phase } => participants.push(Participant {
                    request: *request,
                    is_new: *phase == Phase::Prepare,
                }),
            }
        }
        participants
    }

    /// What was being done, in a word: the generator's work before the preparation's.
    #[must_use]
    pub fn phase(&self) -> Option<&'static str> {
        word(&self.generator).or_else(|| word(&self.prepare))
    }
}

/// What a thread is at: `step`, or a phase of a request's own work.
pub(crate) fn word(lane: &Activity) -> Option<&'static str> {
    match lane.doing {
        Doing::Idle => None,
        Doing::Shared { .. } => Some("step"),
        Doing::Private { phase, .. } => Some(phase_word(phase)),
    }
}
