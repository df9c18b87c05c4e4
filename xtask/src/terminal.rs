//! Time and child processes, as the commands of xtask need them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The only clock of xtask: durations of steps and latencies of requests.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask measures other programs from outside; it has no core to keep pure"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits between two looks at a program that offers no event to wait for.
#[expect(
    clippy::disallowed_methods,
    reason = "readiness of a foreign server can only be polled; every caller has a bound"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Seconds and tenths, for people.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Runs a command with its output on our terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and gives back its standard output; its errors stay on our terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("`{line}` failed ({}){}", output.status, indented(&text));
    }
    Ok(text)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n  {line}")).collect()
}

fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let mut line = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// Numbers of passed and failed tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// The counts in a closing line of cargo's test harness or of a client script.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let counts = match line.strip_prefix("test result: ") {
            Some(rest) => rest.split_once(". ")?.1.replace(';', ","),
            None => line.to_owned(),
        };
        let mut parts = counts.split(", ");
        let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
        let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
        Some(Self { passed, failed })
    }
}

/// Runs a test command, passes its standard output on and counts what its closing lines say.
/// A command that fails without a failed test counts as one.
pub(crate) fn run_tests(command: &mut Command) -> Result<Tally> {
    let line = command_line(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            println!("{line}");
            if let Some(counts) = Tally::of_line(&line) {
                tally.add(counts);
            }
        }
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        println!("`{line}` failed ({status})");
        tally.failed = 1;
    }
    Ok(tally)
}

#[cfg(test)]
mod tests;
