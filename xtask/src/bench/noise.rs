//! How much of the machine somebody else used while we measured.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::server::children;
use crate::terminal::now;

/// Clock ticks per second of `/proc`, fixed on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time at the start of a measurement, in ticks.
#[derive(Debug)]
pub(super) struct Noise {
    server: u32,
    started: Instant,
    machine: u64,
    ours: u64,
}

impl Noise {
    pub(super) fn start(server: u32) -> Result<Self> {
        Ok(Self {
            server,
            started: now(),
            machine: machine_ticks()?,
            ours: our_ticks(server)?,
        })
    }

    /// The share of all processors that neither the server's processes nor we used.
    pub(super) fn others_share(&self, ended: Instant) -> Result<f64> {
        let machine = machine_ticks()?.saturating_sub(self.machine);
        let ours = our_ticks(self.server)?.saturating_sub(self.ours);
        let processors = std::thread::available_parallelism()?.get() as f64;
        let available = (ended - self.started).as_secs_f64() * processors * TICKS_PER_SECOND;
        Ok(machine.saturating_sub(ours) as f64 / available.max(1.0))
    }
}

/// Ticks that all processors spent on anything but idling or waiting for disks.
fn machine_ticks() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .flat_map(str::parse)
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        anyhow::bail!("/proc/stat has too few columns: {line}");
    };
    Ok(user + nice + system + irq + softirq + steal)
}

fn our_ticks(server: u32) -> Result<u64> {
    let mut ticks = process_ticks(std::process::id())?;
    let mut pids = vec![server];
    while let Some(pid) = pids.pop() {
        ticks += process_ticks(pid)?;
        pids.extend(children(pid));
    }
    Ok(ticks)
}

/// User and system ticks of a process, columns 14 and 15 of its `stat`.
fn process_ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second column is the name, which may hold spaces.
    let (_, after_name) = stat.rsplit_once(')').context("no name in a stat file")?;
    let columns: Vec<&str> = after_name.split_whitespace().collect();
    let column = |index: usize| {
        columns
            .get(index)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or_default()
    };
    Ok(column(11) + column(12))
}
