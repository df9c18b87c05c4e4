//! Where the program speaks: results on standard output, everything about them on standard
//! error. Nothing else in the program prints.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How this run speaks, from `--json` and `--quiet`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Results are JSON, for programs.
    pub(crate) json: bool,
    /// No notes and no progress.
    pub(crate) quiet: bool,
}

impl Output {
    /// A line of the result.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(crate) fn line(self, text: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{text}")
    }

    /// The whole result as JSON.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(crate) fn value(self, value: &serde_json::Value) -> io::Result<()> {
        self.line(&format!("{value:#}"))
    }

    /// A remark that is not part of the result. Losing it changes nothing.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            write_note(text);
        }
    }

    /// Why the run failed; not even `--quiet` hides it.
    pub(crate) fn error(error: &anyhow::Error) {
        write_note(&format!("error: {error:#}"));
    }

    /// Whether somebody watches: then bars are drawn.
    pub(crate) fn is_interactive(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Shows how far something of `total` bytes has come: a bar on a terminal, a line for
    /// every quarter elsewhere.
    pub(crate) fn progress(self, label: &str, total: Option<u64>) -> Progress {
        let display = if self.quiet {
            Display::Silent
        } else if self.is_interactive() {
            Display::Bar(bar(label, total))
        } else {
            Display::Lines { quarters: 0 }
        };
        Progress {
            label: label.to_owned(),
            total,
            display,
        }
    }
}

fn write_note(text: &str) {
    // With standard error closed there is nobody to tell.
    writeln!(io::stderr().lock(), "{text}").ok();
}

fn bar(label: &str, total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        None => "{msg} {bytes} {bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_template| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(label.to_owned())
}

#[derive(Debug)]
enum Display {
    Silent,
    Bar(ProgressBar),
    Lines { quarters: u64 },
}

/// How far one transfer has come.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    total: Option<u64>,
    display: Display,
}

impl Progress {
    /// `bytes` are done, of the whole.
    pub(crate) fn set(&mut self, bytes: u64) {
        match &mut self.display {
            Display::Silent => {}
            Display::Bar(bar) => bar.set_position(bytes),
            Display::Lines { quarters } => {
                let done = bytes.saturating_mul(4);
                let now = self.total.and_then(|total| done.checked_div(total));
                if let Some(now) = now.filter(|now| now > quarters) {
                    *quarters = now;
                    let percent = now.saturating_mul(25);
                    write_note(&format!(
                        "{}: {percent} % of {}",
                        self.label,
                        size(self.total)
                    ));
                }
            }
        }
    }

    pub(crate) fn finish(self) {
        if let Display::Bar(bar) = self.display {
            bar.finish_and_clear();
        }
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, megabytes)
}

/// `98.4 MB`, or GB from a thousand of them.
pub(crate) fn megabytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    if megabytes < 1000.0 {
        format!("{megabytes:.1} MB")
    } else {
        format!("{:.2} GB", megabytes / 1000.0)
    }
}
