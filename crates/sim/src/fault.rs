//! What goes wrong, when, drawn from the seed: each run has a few kinds of trouble, so that
//! every mixture comes up, and from a certain time on there is none.

use relight_protocol::{Event, FrameError, frame};

use crate::backend::StepFault;
use crate::random::Random;

const SIGILL: i32 = 4;
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// Mishaps of one run, at most.
const MISHAPS_MAX: u64 = 6;
/// And of the few that exhaust the restart budget.
const MANY_MISHAPS: u64 = 25;

/// How an engine is born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    Healthy,
    /// The process cannot be started.
    NotSpawned,
    DiesBeforeHello,
    HangsBeforeHello,
    DiesLoading,
    HangsLoading,
    LacksMemory,
}

/// An engine that says what is not so. Each can be known from what was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    SkippedIndex,
    RepeatedIndex,
    UnknownId,
    TextGap,
    EarlyEnd,
    Hello,
    /// The same event once more: no lie, but nothing new either.
    Twice,
    /// Bytes that are no frame.
    Rubbish,
    /// One bit of the frame is another.
    FlippedBit,
}

/// Something that befalls an engine that is up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    Signal(i32),
    Exit(i32),
    Hang,
    Lie(Lie),
    Step(StepFault),
    /// The pipe to the supervisor, or from it, stands still.
    StallUp(u64),
    StallDown(u64),
    /// The next request that is prepared fails in that, as if something had panicked.
    PrivateFault,
    /// Some bits of the arena flip before the next engine starts.
    Damage,
    /// As if nobody could reap the engine for a while after its death.
    SlowExit,
}

impl Mishap {
    /// Whether it befalls the engine that is up, or waits for an occasion.
    pub(crate) fn strikes_at_once(self) -> bool {
        !matches!(
            self,
            Self::Lie(_) | Self::Step(_) | Self::SlowExit | Self::PrivateFault | Self::Damage
        )
    }

    /// Whether it may look as if a request had done it.
    pub(crate) fn implicates_work(self) -> bool {
        match self {
            Self::Signal(signal) => !matches!(signal, SIGKILL | SIGTERM),
            Self::SlowExit
            | Self::PrivateFault
            | Self::Damage
            | Self::StallUp(_)
            | Self::StallDown(_) => false,
            Self::Exit(_) | Self::Hang | Self::Lie(_) | Self::Step(_) => true,
        }
    }
}

/// The troubles of one run.
#[derive(Debug)]
pub(crate) struct Faults {
    /// From this time on nothing goes wrong.
    pub(crate) calm_ms: u64,
    pub(crate) mishaps: Vec<(u64, Mishap)>,
    has_hard_births: bool,
    /// Faults that each cost one request, less the requests that failed.
    private_faults: u32,
    /// For the next event that it fits.
    pub(crate) lie: Option<Lie>,
    /// For the next step.
    pub(crate) step: Option<StepFault>,
    pub(crate) slow_exit: bool,
    /// For the next request that is prepared.
    pub(crate) private: bool,
    /// For the next birth.
    pub(crate) damage: bool,
}

impl Faults {
    pub(crate) fn draw(random: &mut Random, calm_ms: u64) -> Self {
        let mut kinds = vec![random.index(KINDS), random.index(KINDS)];
        if random.one_in(4) {
            kinds.extend(0..KINDS);
        }
        let most = if random.one_in(20) {
            MANY_MISHAPS
        } else {
            MISHAPS_MAX
        };
        let count = random.below(most + 1);
        let mut mishap = || {
            let kind = kinds.get(random.index(kinds.len())).copied();
            (
                random.below(calm_ms),
                draw_mishap(random, kind.unwrap_or(0)),
            )
        };
        let mishaps = (0..count).map(|_index| mishap()).collect();
        Self {
            calm_ms,
            mishaps,
            has_hard_births: random.one_in(4),
            private_faults: 0,
            private: false,
            lie: None,
            step: None,
            slow_exit: false,
            damage: false,
        }
    }

    /// How the engine that is spawned now comes along.
    pub(crate) fn birth(&self, now_ms: u64, random: &mut Random) -> Birth {
        if !self.has_hard_births || now_ms >= self.calm_ms || random.one_in(2) {
            return Birth::Healthy;
        }
        random.one_of(
            Birth::NotSpawned,
            &[
                Birth::DiesBeforeHello,
                Birth::HangsBeforeHello,
                Birth::DiesLoading,
                Birth::DiesLoading,
                Birth::HangsLoading,
                Birth::LacksMemory,
            ],
        )
    }

    /// The fault for the step that begins now.
    pub(crate) fn take_step(&mut self) -> Option<StepFault> {
        let fault = self.step.take();
        self.private_faults += u32::from(matches!(fault, Some(StepFault::OneRow { .. })));
        fault
    }

    /// Whether the request that is prepared now fails in that.
    pub(crate) fn takes_private(&mut self) -> bool {
        let fails = std::mem::take(&mut self.private);
        self.private_faults += u32::from(fails);
        fails
    }

    /// Whether a private fault explains that a request has failed, for each fault once.
    pub(crate) fn take_private(&mut self) -> bool {
        let left = self.private_faults.checked_sub(1);
        self.private_faults = left.unwrap_or(0);
        left.is_some()
    }

    /// No trouble that is still pending comes up any more.
    pub(crate) fn calm_down(&mut self) {
        self.lie = None;
        self.step = None;
        self.slow_exit = false;
        self.private = false;
    }
}

const KINDS: usize = 7;

fn draw_mishap(random: &mut Random, kind: usize) -> Mishap {
    match kind {
        0 | 1 => {
            Mishap::Signal(random.one_of(SIGKILL, &[SIGKILL, SIGTERM, SIGSEGV, SIGABRT, SIGILL]))
        }
        2 => Mishap::Hang,
        3 => Mishap::Lie(random.one_of(
            Lie::SkippedIndex,
            &[
                Lie::RepeatedIndex,
                Lie::UnknownId,
                Lie::TextGap,
                Lie::EarlyEnd,
                Lie::Hello,
                Lie::Twice,
                Lie::Rubbish,
                Lie::FlippedBit,
            ],
        )),
        4 => {
            let row = random.index(8);
            Mishap::Step(random.one_of(
                StepFault::Error,
                &[
                    StepFault::Panic,
                    StepFault::AllRows,
                    StepFault::OneRow {
                        row,
                        value: f32::NAN,
                    },
                    StepFault::OneRow {
                        row,
                        value: f32::NEG_INFINITY,
                    },
                ],
            ))
        }
        5 => {
            let stall_ms = random.one_of(50, &[500, 4000, 8000]);
            random.one_of(Mishap::StallUp(stall_ms), &[Mishap::StallDown(stall_ms)])
        }
        _ => random.one_of(
            Mishap::Exit(0),
            &[
                Mishap::Exit(101),
                Mishap::SlowExit,
                Mishap::Damage,
                Mishap::PrivateFault,
                Mishap::PrivateFault,
            ],
        ),
    }
}

/// Encodes an event as a liar does. Returns the lie if it does not fit this event.
pub(crate) fn encode_lie(
    lie: Lie,
    event: &Event,
    target: &mut Vec<u8>,
    random: &mut Random,
) -> Result<Option<Lie>, FrameError> {
    let mut changed = event.clone();
    match (lie, &mut changed) {
        (Lie::SkippedIndex, Event::Delta(delta)) => delta.token_index += 1,
        (Lie::RepeatedIndex, Event::Delta(delta)) if delta.token_index > 0 => {
            delta.token_index -= 1;
        }
        (Lie::UnknownId, Event::Delta(delta)) => delta.id.0 += 1_000_000,
        (Lie::TextGap, Event::Delta(delta)) => delta.text_offset += 1,
        (Lie::EarlyEnd, Event::Delta(delta)) => {
            let finished = relight_protocol::Finished {
                id: delta.id,
                usage: relight_protocol::Usage::default(),
            };
            changed = Event::Finished(finished);
        }
        (Lie::Hello, Event::Delta(_)) => {
            changed = Event::Hello {
                protocol_version: relight_protocol::PROTOCOL_VERSION,
                promise: relight_protocol::Promise::Exact,
            };
        }
        (Lie::Twice, _) => frame::encode(&changed, target)?,
        (Lie::Rubbish, _) => {
            target.extend((0..random.between(4, 40)).map(|_index| random.bits().to_le_bytes()[0]));
            return Ok(None);
        }
        (Lie::FlippedBit, Event::Delta(_) | Event::ChoiceFinished(_)) => {
            let start = target.len();
            frame::encode(event, target)?;
            let bit = random.index(8 * (target.len() - start));
            if let Some(byte) = target.get_mut(start + bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            return Ok(None);
        }
        _ => {
            frame::encode(event, target)?;
            return Ok(Some(lie));
        }
    }
    frame::encode(&changed, target)?;
    Ok(None)
}
