//! One engine process: a child with a socket for its standard input.
//!
//! Reads and writes never block, and every way in which it can end comes out as one last
//! input. What the child had written before its end is handed in first, so that no committed
//! token is computed twice for nothing.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use relight_protocol::{Command, Event, FrameDecoder, FrameError, frame};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, Command as ProcessCommand};

use crate::config::EngineCommand;
use crate::core::{EngineNumber, Exit, Input};

const READ_BYTES: usize = 64 << 10;
/// Room that an idle outbox keeps, and written bytes that a busy one may carry along.
const OUTBOX_KEPT_BYTES: usize = 1 << 20;
/// A dead child's pipe holds no more than the socket's buffer; whoever goes on writing there
/// is somebody else.
const READS_AFTER_EXIT_MAX: usize = 1024;

/// A running engine.
#[derive(Debug)]
pub(crate) struct EngineProcess {
    number: EngineNumber,
    child: Child,
    pipe: UnixStream,
    decoder: FrameDecoder,
    /// No more bytes will come, or none that mean anything.
    is_read_over: bool,
    /// Encoded commands; those before `written` are gone already.
    outbox: Vec<u8>,
    written: usize,
    buffer: Box<[u8]>,
}

impl EngineProcess {
    /// Starts the child. It gets a process group of its own, so that a Ctrl-C at the terminal
    /// reaches the front alone, which then lets running work finish.
    pub(crate) fn spawn(command: &EngineCommand, number: EngineNumber) -> std::io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let pipe = UnixStream::from_std(ours)?;
        let environment = command.environment.iter().map(|(key, value)| (key, value));
        let child = ProcessCommand::new(&command.program)
            .arg0(&command.shown_as)
            .args(&command.arguments)
            .envs(environment)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            number,
            child,
            pipe,
            decoder: FrameDecoder::default(),
            is_read_over: false,
            outbox: Vec::new(),
            written: 0,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        })
    }

    pub(crate) fn number(&self) -> EngineNumber {
        self.number
    }

    /// `None` once it is reaped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Puts a command on the pipe, now or when the engine has read enough.
    pub(crate) fn send(&mut self, command: &Command) -> Result<(), FrameError> {
        frame::encode(command, &mut self.outbox)?;
        self.flush();
        Ok(())
    }

    /// SIGKILL. Safe to repeat, and on a child that is gone.
    pub(crate) fn kill(&mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::debug!(%error, "the engine was gone before it was killed");
        }
    }

    /// Waits until something has happened and adds it to `inputs`; nothing is lost if the
    /// future is dropped. After `EngineExited` it must not be called again.
    pub(crate) async fn progress(&mut self, inputs: &mut Vec<Input>) {
        let (may_read, may_write) = (!self.is_read_over, !self.outbox.is_empty());
        let Self {
            child,
            pipe,
            buffer,
            ..
        } = self;
        let (mut reader, writer) = pipe.split();
        tokio::select! {
            status = child.wait() => self.exited(status, inputs),
            count = reader.read(buffer), if may_read => {
                self.received(count, inputs);
            }
            ready = writer.writable(), if may_write => match ready {
                Ok(()) => self.flush(),
                Err(error) => self.lost_pipe(&error),
            },
        }
    }

    /// Waits for the end of a child that has been killed.
    pub(crate) async fn reap(&mut self) {
        self.kill();
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "the engine cannot be reaped");
        }
    }

    fn exited(&mut self, status: std::io::Result<ExitStatus>, inputs: &mut Vec<Input>) {
        for _ in 0..READS_AFTER_EXIT_MAX {
            if self.is_read_over || !self.read(inputs) {
                break;
            }
        }
        let exit = match status {
            Ok(status) => exit_of(status),
            Err(error) => {
                tracing::error!(%error, "the engine's end cannot be seen");
                Exit::Unreaped
            }
        };
        let engine = self.number;
        let end = Box::new(exit.into());
        inputs.push(Input::EngineExited { engine, end });
    }

    /// Writes what the pipe takes.
    fn flush(&mut self) {
        while let Some(rest) = self.outbox.get(self.written..)
            && !rest.is_empty()
        {
            match self.pipe.try_write(rest) {
                Ok(count) => self.written = self.written.saturating_add(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.lost_pipe(&error);
                    break;
                }
            }
        }
        // What is gone is dropped now and then, so that a pipe which is never quite empty does
        // not make the outbox grow.
        if self.written == self.outbox.len() {
            self.outbox.clear();
            self.outbox.shrink_to(OUTBOX_KEPT_BYTES);
            self.written = 0;
        } else if self.written > OUTBOX_KEPT_BYTES {
            self.outbox.drain(..self.written);
            self.written = 0;
        }
    }

    /// Reads once and decodes what is whole. False if there was nothing to read.
    fn read(&mut self, inputs: &mut Vec<Input>) -> bool {
        let count = self.pipe.try_read(&mut self.buffer);
        self.received(count, inputs)
    }

    /// Decodes what a read brought. False if it brought nothing.
    fn received(&mut self, count: std::io::Result<usize>, inputs: &mut Vec<Input>) -> bool {
        match count {
            Ok(0) => {
                // Without a pipe there is no engine, even if the process goes on.
                self.is_read_over = true;
                self.kill();
                false
            }
            Ok(count) => {
                self.decoder
                    .push(self.buffer.get(..count).unwrap_or_default());
                self.decode(inputs);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                self.is_read_over = true;
                self.lost_pipe(&error);
                false
            }
        }
    }

    fn decode(&mut self, inputs: &mut Vec<Input>) {
        let engine = self.number;
        loop {
            match self.decoder.next_value::<Event>() {
                Ok(Some(event)) => inputs.push(Input::EngineEvent { engine, event }),
                Ok(None) => return,
                Err(error) => {
                    self.is_read_over = true;
                    inputs.push(Input::PipeBroken { engine, error });
                    return;
                }
            }
        }
    }

    /// The other end is closed, or the kernel refuses: the child's end tells the rest. What
    /// it may still have written stays readable.
    fn lost_pipe(&mut self, error: &std::io::Error) {
        tracing::debug!(%error, "the engine's pipe is lost");
        self.outbox.clear();
        self.written = 0;
        self.kill();
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unreaped,
    }
}
