//! When an engine counts as hung. What it is at comes from the flight recorder, together
//! with how long that should take; how long it has been at it is measured here, from look to
//! look, so that no clock is shared and a front that could not look blames nobody for it.

use relight_protocol::limits::{HANG_FACTOR, LOOK_MS_MAX};
use relight_protocol::recorder::Activity;

use super::lifecycle::EngineState;
use super::{Cause, Core, EngineNumber};
use crate::lanes::{self, Lanes};

/// What was seen of one thread.
#[derive(Debug, Default)]
struct LaneAge {
    changes: u64,
    /// How long `changes` has not moved.
    age_ms: u64,
}

impl LaneAge {
    /// True if the thread has moved since the last look.
    fn look(&mut self, lane: &Activity, passed_ms: u64) -> bool {
        let has_moved = lane.changes != self.changes;
        self.changes = lane.changes;
        self.age_ms = if has_moved {
            0
        } else {
            self.age_ms.saturating_add(passed_ms)
        };
        has_moved
    }
}

/// Of the engine that is up.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    looked_ms: Option<u64>,
    generator: LaneAge,
    prepare: LaneAge,
    /// How long the engine has had work, done nothing and said nothing.
    quiet_ms: u64,
}

/// What an engine is stuck in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hang {
    doing: &'static str,
    stuck_ms: u64,
}

impl Watchdog {
    /// The engine has said something.
    pub(super) fn heard(&mut self) {
        self.quiet_ms = 0;
    }

    /// Takes in what the recorder says at `now_ms`.
    pub(super) fn look(
        &mut self,
        now_ms: u64,
        lanes: &Lanes,
        has_work: bool,
        timeout_ms: u64,
    ) -> Option<Hang> {
        let last_ms = self.looked_ms.replace(now_ms).unwrap_or(now_ms);
        let passed_ms = now_ms.saturating_sub(last_ms).min(LOOK_MS_MAX);
        let mut has_moved = self.generator.look(&lanes.generator, passed_ms);
        has_moved |= self.prepare.look(&lanes.prepare, passed_ms);
        let busy = [
            (&lanes.generator, &self.generator),
            (&lanes.prepare, &self.prepare),
        ];
        for (lane, LaneAge { age_ms, .. }) in busy {
            let predicted_ms = lane.predicted_ms.saturating_mul(HANG_FACTOR);
            let limit_ms = timeout_ms.saturating_add(predicted_ms);
            if let (Some(doing), true) = (lanes::word(lane), *age_ms > limit_ms) {
                let stuck_ms = *age_ms;
                return Some(Hang { doing, stuck_ms });
            }
        }
        if has_moved || !has_work || !lanes.is_idle() {
            self.quiet_ms = 0;
        } else {
            self.quiet_ms = self.quiet_ms.saturating_add(passed_ms);
        }
        let stuck_ms = self.quiet_ms;
        let doing = "nothing";
        (stuck_ms > timeout_ms).then_some(Hang { doing, stuck_ms })
    }
}

impl Core {
    pub(super) fn looked(&mut self, engine: EngineNumber, lanes: &Lanes) {
        if engine != self.engine || self.state != EngineState::Serving {
            return;
        }
        let has_work = self.in_flight() > 0;
        let timeout_ms = self.bounds.hang_timeout_ms;
        let now_ms = self.now_ms();
        let hang = self.watchdog.look(now_ms, lanes, has_work, timeout_ms);
        if let Some(Hang { doing, stuck_ms }) = hang {
            self.condemn(Cause::Hang { doing, stuck_ms });
        }
    }
}

#[cfg(test)]
mod tests;
