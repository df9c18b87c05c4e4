//! The flight recorder: two lanes of shared memory in which the engine's threads note what
//! they are about to do, before they do it. After a death it tells who took part; before
//! one it is the heartbeat.
//!
//! ```text
//!   lane (4096 bytes, little-endian words of 8):
//!     0 changes        odd while the lane is being written
//!     1 doing          kind | phase << 8 | participants << 16
//!     2 step           steps begun by this engine
//!     3 predicted_ms   how long this should take
//!     4 request        of a private phase
//!     5.. participants id << 1 | is_new
//! ```
//!
//! Only one thread writes a lane. Words are atomic, so a reader in another process sees each
//! whole; `changes` tells whether they belong together.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use serde::{Deserialize, Serialize};

use crate::limits::SLOTS_MAX;
use crate::{Phase, RequestId};

/// Bytes of one lane.
pub const LANE_BYTES: usize = 4096;
/// Words of one lane.
pub const LANE_WORDS: usize = LANE_BYTES / 8;
/// Bytes of the whole recorder.
pub const RECORDER_BYTES: usize = 2 * LANE_BYTES;

const CHANGES: usize = 0;
const DOING: usize = 1;
const STEP: usize = 2;
const PREDICTED: usize = 3;
const REQUEST: usize = 4;
const PARTICIPANTS: usize = 5;

const IDLE: u64 = 0;
const SHARED: u64 = 1;
const PRIVATE: u64 = 2;

const _: () = assert!(PARTICIPANTS + SLOTS_MAX <= LANE_WORDS);

/// Which of the engine's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    Generator,
    Prepare,
}

impl Lane {
    /// Byte offset of the lane in the recorder.
    #[must_use]
    pub fn offset(self) -> usize {
        match self {
            Self::Generator => 0,
            Self::Prepare => LANE_BYTES,
        }
    }
}

/// A request in a shared step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Participant {
    pub request: RequestId,
    /// It has not come through a step of this engine yet: the first to be suspected.
    pub is_new: bool,
}

/// What a thread of the engine is at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Doing {
    #[default]
    Idle,
    /// The forward pass, for all of these.
    Shared { participants: Vec<Participant> },
    /// Work for one request alone.
    Private { request: RequestId, phase: Phase },
}

/// One lane as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Grows with everything the thread begins or ends: the heartbeat.
    pub changes: u64,
    pub step: u64,
    /// How long this should take, by the engine's own cost model.
    pub predicted_ms: u64,
    pub doing: Doing,
}

impl Activity {
    /// What `bytes` of a lane say. A lane that was caught while it was being written has an
    /// odd `changes` and may mix two activities; one that holds rubbish reads as idle.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let start = index * 8;
            let word = bytes.get(start..).and_then(<[u8]>::first_chunk::<8>);
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let doing = word(DOING);
        Self {
            changes: word(CHANGES),
            step: word(STEP),
            predicted_ms: word(PREDICTED),
            doing: match doing & 0xff {
                SHARED => {
                    let count = usize::try_from(doing >> 16).unwrap_or(usize::MAX);
                    let participants = (0..count.min(SLOTS_MAX)).map(|index| {
                        let word = word(PARTICIPANTS + index);
                        Participant {
                            request: RequestId(word >> 1),
                            is_new: word & 1 == 1,
                        }
                    });
                    Doing::Shared {
                        participants: participants.collect(),
                    }
                }
                PRIVATE => phase_of((doing >> 8) & 0xff).map_or(Doing::Idle, |phase| {
                    let request = RequestId(word(REQUEST));
                    Doing::Private { request, phase }
                }),
                _ => Doing::Idle,
            },
        }
    }

    /// Whether the lane was caught between two activities.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.changes % 2 == 1
    }
}

/// The writing end of one lane, on memory that the supervisor can read.
#[derive(Debug)]
pub struct LaneWriter<'a> {
    words: &'a [AtomicU64; LANE_WORDS],
}

impl<'a> LaneWriter<'a> {
    /// There must be no other writer of these words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64; LANE_WORDS]) -> Self {
        Self { words }
    }

    /// Nothing is being done.
    pub fn idle(&self) {
        self.change(|| self.set(DOING, IDLE));
    }

    /// A forward pass begins. More than `SLOTS_MAX` participants are not noted.
    pub fn shared(
        &self,
        step: u64,
        predicted_ms: u64,
        participants: impl Iterator<Item = Participant>,
    ) {
        self.change(|| {
            let mut count = 0;
            for (slot, who) in self
                .words
                .iter()
                .skip(PARTICIPANTS)
                .take(SLOTS_MAX)
                .zip(participants)
            {
                slot.store(
                    who.request.0 << 1 | u64::from(who.is_new),
                    Ordering::Relaxed,
                );
                count += 1;
            }
            self.set(STEP, step);
            self.set(PREDICTED, predicted_ms);
            self.set(DOING, SHARED | count << 16);
        });
    }

    /// Work for one request begins, or comes to another phase.
    pub fn private(&self, request: RequestId, phase: Phase, predicted_ms: u64) {
        self.change(|| {
            self.set(REQUEST, request.0);
            self.set(PREDICTED, predicted_ms);
            self.set(DOING, PRIVATE | number_of(phase) << 8);
        });
    }

    fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.words.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn change(&self, write: impl FnOnce()) {
        let Some(changes) = self.words.get(CHANGES) else {
            return;
        };
        // Odd even if the last writer died half way.
        let odd = changes.load(Ordering::Relaxed) | 1;
        changes.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        write();
        changes.store(odd.wrapping_add(1), Ordering::Release);
    }
}

fn number_of(phase: Phase) -> u64 {
    match phase {
        Phase::Prepare => 0,
        Phase::Admit => 1,
        Phase::Sample => 2,
        Phase::Detokenize => 3,
        Phase::Emit => 4,
    }
}

fn phase_of(number: u64) -> Option<Phase> {
    [
        Phase::Prepare,
        Phase::Admit,
        Phase::Sample,
        Phase::Detokenize,
        Phase::Emit,
    ]
    .into_iter()
    .find(|phase| number_of(*phase) == number)
}

#[cfg(test)]
mod tests;
