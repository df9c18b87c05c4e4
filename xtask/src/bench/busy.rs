//! A neighbour that wants one processor for itself.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::terminal::now;

/// No measurement beside a neighbour takes longer.
const BUSY_S_MAX: u64 = 120;

/// The neighbour's process; dropping it ends it.
#[derive(Debug)]
pub(super) struct Neighbour(Child);

impl Neighbour {
    pub(super) fn start(processor: usize) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command = Command::new(program);
        command.args(["busy", &processor.to_string()]);
        Ok(Self(command.stdin(Stdio::null()).spawn()?))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Computes nothing on one processor until the parent ends or the time is up.
pub(crate) fn run(processor: usize) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).context("the processor is not there")?;
    let started = now();
    while now() - started < Duration::from_secs(BUSY_S_MAX) {
        std::hint::spin_loop();
    }
    Ok(())
}
