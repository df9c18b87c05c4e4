//! A server under test or measurement: started, waited for, looked at, stopped.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::http::Client;
use crate::terminal::{now, pause};

const READY_WAIT: Duration = Duration::from_secs(120);
const STOP_WAIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// A running server with its output in a log file. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) client: Client,
    pub(crate) started: Instant,
    log: PathBuf,
}

impl Server {
    /// Starts `command`, to which `--port PORT` is appended, and waits until `/health` is 200.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let port = free_port()?;
        let output =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let started = now();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let mut server = Self {
            child,
            client: Client::new(port),
            started,
            log: log.to_path_buf(),
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        while now() - self.started < READY_WAIT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at start ({status}){}", self.last_lines());
            }
            if self.client.get("/health").is_ok_and(|status| status == 200) {
                return Ok(());
            }
            pause(POLL);
        }
        bail!(
            "the server is not ready after {} s{}",
            READY_WAIT.as_secs(),
            self.last_lines()
        )
    }

    /// Whether the process is there; one that ended by itself never answers again.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// The end of the server's log, for an error message.
    pub(crate) fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(20)..)
            .unwrap_or_default();
        format!("; its log ends with:\n{}", tail.join("\n"))
    }

    /// Asks with SIGTERM, as an init system does, and demands that the server ends in time.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        crate::terminal::run(Command::new("kill").args(["-TERM", &pid]))?;
        let asked = now();
        while now() - asked < STOP_WAIT {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            pause(Duration::from_millis(20));
        }
        bail!("the server ignores SIGTERM{}", self.last_lines())
    }

    /// Bytes of memory of the server and all its descendants; a page that two processes
    /// share counts once.
    pub(crate) fn memory(&self) -> Result<u64> {
        let mut bytes = 0;
        let mut pids = vec![self.pid()];
        while let Some(pid) = pids.pop() {
            bytes += proportional_bytes(pid)?;
            pids.extend(children(pid));
        }
        Ok(bytes)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_alive() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// The proportional share of a process in physical memory, in bytes.
fn proportional_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let line = line.with_context(|| format!("{path} has no Pss"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// Direct children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}
