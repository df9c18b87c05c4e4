//! Frames on the control socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use relight_protocol::{Command, Event, FrameDecoder, frame};

use crate::error::EngineError;
use crate::injected;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 64 << 10;
/// A buffer above this size is given back after it was sent.
const KEPT_BYTES: usize = 1 << 20;

/// Commands as they come.
#[derive(Debug)]
pub(super) struct CommandReader {
    socket: UnixStream,
    decoder: FrameDecoder,
    chunk: Vec<u8>,
}

impl CommandReader {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            decoder: FrameDecoder::default(),
            chunk: vec![0; READ_BYTES],
        }
    }

    /// Waits for the next command. `None`: the other side is gone, perhaps within a frame.
    pub(super) fn next(&mut self) -> Result<Option<Command>, EngineError> {
        loop {
            if let Some(command) = self.decoder.next_value()? {
                injected::received();
                #[cfg(feature = "fault-injection")]
                if let Command::Inject(injection) = command {
                    injected::arm(injection);
                    continue;
                }
                return Ok(Some(command));
            }
            let count = match self.socket.read(&mut self.chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(EngineError::Socket(error)),
            };
            self.decoder
                .push(self.chunk.get(..count).unwrap_or_default());
        }
    }
}

/// Events on their way out: collected, then sent with one write.
#[derive(Debug)]
pub(super) struct Outbox {
    socket: UnixStream,
    buffer: Vec<u8>,
}

impl Outbox {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
        }
    }

    fn push(&mut self, event: &Event) -> Result<(), EngineError> {
        if injected::outgoing(event, &mut self.buffer) {
            frame::encode(event, &mut self.buffer)?;
        }
        Ok(())
    }

    /// Sends one event at once, after those that were pushed.
    pub(super) fn send(&mut self, event: &Event) -> Result<(), EngineError> {
        self.push(event)?;
        self.flush()
    }

    /// Sends events with one write.
    pub(super) fn send_all(&mut self, events: &[Event]) -> Result<(), EngineError> {
        for event in events {
            self.push(event)?;
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.socket
            .write_all(&self.buffer)
            .map_err(EngineError::Socket)?;
        injected::flushed();
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        Ok(())
    }
}
