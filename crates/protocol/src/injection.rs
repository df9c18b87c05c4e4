//! Faults on order, for tests: what shall go wrong, where and when. Only there with the
//! feature `fault-injection`.

use serde::{Deserialize, Serialize};

/// A named place in one of the processes that work passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The engine, before it loads its model.
    Load,
    /// The engine's reader, after each command.
    Command,
    /// The private phases of a request.
    Prepare,
    Admit,
    Sample,
    Detokenize,
    Emit,
    /// Before the forward pass.
    Shared,
    /// After it, before its pages are sealed.
    Confirm,
    /// The logits of a step.
    Logits,
    /// An event on its way to the supervisor.
    Pipe,
    /// The front's handler of a request, before it is submitted.
    Handler,
    /// The front's writer of a stream, at each event.
    Stream,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blow {
    Panic,
    /// The place reports an error: out of memory for a request, a failed device for a step.
    Error,
    Abort,
    /// SIGKILL.
    Kill,
    Segfault,
    StackOverflow,
    /// An allocation that cannot be had.
    Exhaust,
    Exit,
    /// Computes for ever.
    Hang,
    /// Sleeps for half a second, as a slow machine would.
    Pause,
    /// Logits become not a number: one request's with a marker, else all.
    NonFinite,
    /// Bytes that are no frame.
    Garbage,
    /// Half a frame, then the end of the process.
    Cut,
    /// A delta for a request that does not exist, one twice, or one left out.
    WrongId,
    Repeat,
    Skip,
}

/// One order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    pub place: Place,
    pub blow: Blow,
    /// Only for requests whose prompt has this text in it.
    #[serde(default)]
    pub marker: Option<String>,
    /// Passes that are let through first.
    #[serde(default)]
    pub skip: u64,
    /// Strikes each pass after that with this chance instead of always.
    #[serde(default)]
    pub per_million: Option<u32>,
    #[serde(default)]
    pub seed: u64,
    /// Strikes so often in one process; `None` is without end.
    #[serde(default)]
    pub times: Option<u32>,
    /// Whether engines that start later get the order too.
    #[serde(default)]
    pub every_engine: bool,
}

/// An order and how far it has been carried out.
#[derive(Clone, Debug)]
pub struct Armed {
    injection: Injection,
    passes: u64,
    strikes: u32,
    noise: u64,
}

impl Armed {
    #[must_use]
    pub fn new(injection: Injection) -> Self {
        Self {
            noise: injection.seed,
            injection,
            passes: 0,
            strikes: 0,
        }
    }

    #[must_use]
    pub fn injection(&self) -> &Injection {
        &self.injection
    }

    /// Work passes `place`; `is_marked` says whether it is for a request that has the order's
    /// marker. The blow, if it is due now.
    pub fn pass(&mut self, place: Place, is_marked: impl FnOnce(&str) -> bool) -> Option<Blow> {
        let order = &self.injection;
        let is_meant = order.place == place
            && order.times.is_none_or(|times| self.strikes < times)
            && order.marker.as_deref().is_none_or(is_marked);
        if !is_meant {
            return None;
        }
        self.passes += 1;
        if self.passes <= order.skip {
            return None;
        }
        if let Some(per_million) = order.per_million {
            self.noise = split_mix(self.noise);
            if self.noise % 1_000_000 >= u64::from(per_million) {
                return None;
            }
        }
        self.strikes += 1;
        Some(order.blow)
    }
}

/// The next number of a fixed, well-mixed sequence (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014), short of its last step.
fn split_mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[cfg(test)]
mod tests;
