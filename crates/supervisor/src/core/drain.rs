//! The end: what runs may finish within a time, the rest is failed, the engine goes.

use relight_protocol::{Command, Overload, limits};

use super::lifecycle::EngineState;
use super::{Action, Core};
use crate::handle::DrainReport;
use crate::ledger::Entry;
use crate::stream::RequestFailure;

/// A shutdown that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) by_ms: u64,
    /// Requests cut short.
    failed: usize,
    /// The engine had to be killed, or ended badly.
    forced: bool,
}

impl Core {
    pub(super) fn shutdown(&mut self, drain_ms: u64) {
        if self.drain.is_some() {
            return;
        }
        self.drain = Some(Drain {
            by_ms: self.now_ms().saturating_add(drain_ms),
            failed: 0,
            forced: false,
        });
        let draining = self.overloaded(Overload::Draining);
        self.fail_all(&draining.into(), |entry| entry.attempts == 0);
        self.stop_if_drained();
    }

    /// Fails requests through no fault of theirs: a drain that does so is not clean.
    pub(super) fn cut_short(
        &mut self,
        failure: &RequestFailure,
        is_meant: impl Fn(&Entry) -> bool,
    ) {
        let cut = self.fail_all(failure, is_meant);
        if let Some(drain) = &mut self.drain {
            drain.failed = drain.failed.saturating_add(cut);
        }
    }

    /// The time for running work is over.
    pub(super) fn end_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.by_ms = u64::MAX;
        }
        let draining = self.overloaded(Overload::Draining);
        self.cut_short(&draining.into(), |_entry| true);
        self.stop_if_drained();
    }

    /// Ends the engine once a drain has nothing left to wait for.
    pub(super) fn stop_if_drained(&mut self) {
        if self.drain.is_none() || !self.ledger.is_empty() {
            return;
        }
        let engine = self.engine;
        match self.state {
            EngineState::Serving => self.send(Command::Shutdown),
            EngineState::Starting { .. } | EngineState::Loading { .. } => {
                // Nothing is lost with an engine that has done no work: no need to wait
                // until it looks at its pipe. Its end by our own signal is a clean one.
                self.actions.push(Action::Kill { engine });
                self.finish_stop();
                return;
            }
            EngineState::Idle
            | EngineState::Waiting { .. }
            | EngineState::Failed { .. }
            | EngineState::Refused { .. } => {
                self.finish_stop();
                return;
            }
            // Its end, awaited already, ends the drain.
            EngineState::Dying { .. } | EngineState::Stopping { .. } | EngineState::Stopped => {
                return;
            }
        }
        let by_ms = self.now_ms().saturating_add(limits::ENGINE_EXIT_MS_MAX);
        self.state = EngineState::Stopping { by_ms };
    }

    pub(super) fn force_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.forced = true;
        }
    }

    pub(super) fn finish_stop(&mut self) {
        let report = self.drain.map_or(
            DrainReport {
                failed: 0,
                clean: false,
            },
            |drain| DrainReport {
                failed: drain.failed,
                clean: drain.failed == 0 && !drain.forced,
            },
        );
        self.state = EngineState::Stopped;
        self.actions.push(Action::Stop { report });
    }
}

#[cfg(test)]
mod tests;
