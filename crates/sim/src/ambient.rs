//! What everything in a run shares: time, chance, trouble, and the record of both what
//! happened and what should not have.

use std::collections::BTreeMap;
use std::fmt;

use relight_protocol::RequestId;
use relight_supervisor::core::{EngineNumber, Exit};

use crate::clock::Agenda;
use crate::fault::{Faults, Mishap};
use crate::poison::Poisons;
use crate::random::Random;
use crate::trace::Trace;

/// What can be planned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// The supervisor's deadline may have come.
    Tick,
    Arrives(usize),
    Reads(usize),
    HangsUp(usize),
    /// The new process gets to its first instruction.
    Booted(EngineNumber),
    /// Another part of the model is loaded.
    Loads(EngineNumber),
    /// The generator looks at its inbox.
    Turns(EngineNumber),
    /// The step that the generator computes is done.
    Stepped(EngineNumber),
    /// The preparation thread is done with a job.
    Prepared(EngineNumber),
    ToEngine(EngineNumber),
    ToSupervisor(EngineNumber),
    Exited(EngineNumber, Exit),
    Befalls(Mishap),
    Calm,
    /// The front is asked to end.
    Shutdown,
    /// Everything should have ended by now.
    Deadline,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ambient {
    pub(crate) agenda: Agenda<Happening>,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) poisons: Poisons,
    /// When clients hung up.
    pub(crate) gone_ms: BTreeMap<RequestId, u64>,
    /// Something befell the engine that may look like the doing of its requests.
    pub(crate) is_tainted: bool,
    /// The engine could not be heard for a while.
    pub(crate) is_stalled: bool,
    /// Something stood still at some time, which takes long to find out.
    pub(crate) has_hung: bool,
    /// Latches of the engine that the simulation has caused, and nobody has heard of yet.
    pub(crate) tainted_latches: u32,
    /// Engines so far that the simulation has brought down.
    pub(crate) mishap_ends: u32,
    pub(crate) trace: Trace,
    pub(crate) breaches: Vec<String>,
}

impl Ambient {
    pub(crate) fn note(&mut self, line: fmt::Arguments<'_>) {
        self.trace.note(self.agenda.now_ms(), line);
    }

    /// A property does not hold.
    pub(crate) fn breach(&mut self, what: fmt::Arguments<'_>) {
        self.note(format_args!("BREACH {what}"));
        let now_ms = self.agenda.now_ms();
        self.breaches.push(format!("at {now_ms} ms: {what}"));
    }

    /// A poison has brought an engine or a generator down.
    pub(crate) fn poison_worked(&mut self, id: RequestId) {
        self.note(format_args!("poison works: {id}"));
        if !self.poisons.worked(id, self.mishap_ends) {
            self.breach(format_args!("{id} works more often than it should"));
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.agenda.now_ms()
    }

    /// Plans something a while from now, at least 1 ms, at most `most_ms`.
    pub(crate) fn soon(&mut self, most_ms: u64, what: Happening) {
        let wait_ms = self.random.between(1, most_ms);
        self.agenda.after(wait_ms, what);
    }
}
