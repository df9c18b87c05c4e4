//! Standard error for logs: whoever should read it may be stuck, and then lines are dropped
//! and counted instead of holding up the server.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A pipe that is ready takes this much without blocking (POSIX: `PIPE_BUF` is at least 512,
/// on Linux it is 4096).
const PIECE_BYTES: usize = 4096;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Takes whole lines, each with one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let note = format!("{dropped} lines were dropped: nobody read them\n");
            if !put(note.as_bytes()) {
                DROPPED.fetch_add(dropped, Ordering::Relaxed);
            }
        }
        if !put(line) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes as long as it can be done at once. False if something was left.
fn put(bytes: &[u8]) -> bool {
    bytes
        .chunks(PIECE_BYTES)
        .all(|piece| is_ready() && io::stderr().write_all(piece).is_ok())
}

fn is_ready() -> bool {
    let error = io::stderr();
    let mut events = [PollFd::new(&error, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut events, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
