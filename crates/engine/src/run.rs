//! The loop around the core: three threads and a socket.
//!
//! ```text
//!   socket ──> reader ──┐ inbox (bounded)                    one write per step
//!                       ├───────> generator (main): core ────────────> socket
//!   preparation ────────┘            │
//!       ▲          jobs (bounded)    │
//!       └────────────────────────────┘
//! ```
//!
//! The generator sleeps when there is nothing to compute. It ends when it is told to, and
//! when the socket ends, because then the supervisor is dead.

mod wire;

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use relight_protocol::limits::{ENGINE_INBOX_MAX, ENGINE_REQUESTS_MAX, RETRY_AFTER_S_MIN};
use relight_protocol::recorder::Lane;
use relight_protocol::{Command, EngineConfig, Event, Fault, Overload, PROTOCOL_VERSION, Promise};
use wire::{CommandReader, Outbox};

use crate::arena::{ArenaFiles, Recorder};
use crate::backend::Backend;
use crate::containment::keep_reports;
use crate::core::{Core, Input, PrepareJob};
use crate::error::EngineError;
use crate::injected;
use crate::load::{self, LoadError, Loaded};
use crate::prepare::{PrepareContext, run_job};
use crate::recording::{self, LaneUse};

/// Stack of the preparation thread: template engines and pattern matchers recurse.
const PREPARE_STACK_BYTES: usize = 16 << 20;

/// The life of an engine process: the control socket is its standard input.
///
/// # Errors
/// Why it ended, unless it was told to or the supervisor went away.
pub fn run() -> Result<(), EngineError> {
    keep_reports();
    // Without this an engine in a long step would outlive a supervisor that was killed.
    let signal = Some(rustix::process::Signal::KILL);
    if let Err(error) = rustix::process::set_parent_process_death_signal(signal) {
        tracing::warn!(%error, "this engine may outlive its supervisor");
    }
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(EngineError::Socket)?;
    run_on(&UnixStream::from(socket))
}

/// An engine on this socket, until it is told to end or the socket ends.
///
/// # Errors
/// Why it ended otherwise.
pub fn run_on(socket: &UnixStream) -> Result<(), EngineError> {
    let mut outbox = Outbox::new(socket.try_clone().map_err(EngineError::Socket)?);
    outbox.send(&Event::Hello {
        protocol_version: PROTOCOL_VERSION,
        promise: Promise::Exact,
    })?;
    let mut commands = CommandReader::new(socket.try_clone().map_err(EngineError::Socket)?);
    match commands.next()? {
        Some(Command::Load(config)) => load_and_serve(&config, socket, commands, outbox),
        Some(Command::Shutdown) | None => Ok(()),
        Some(command) => Err(out_of_turn(&command)),
    }
}

fn load_and_serve(
    config: &EngineConfig,
    socket: &UnixStream,
    commands: CommandReader,
    mut outbox: Outbox,
) -> Result<(), EngineError> {
    let started = now();
    injected::load();
    let arenas = ArenaFiles::of_parent(config.arenas).map_err(LoadError::from);
    let progress = &mut |done_bytes, total_bytes| {
        let event = Event::Loading {
            done_bytes,
            total_bytes,
        };
        // A supervisor that is gone shows when the commands are read.
        if let Err(error) = outbox.send(&event) {
            tracing::debug!(%error, "progress was not reported");
        }
    };
    let loaded = arenas.and_then(|arenas| {
        let recorder = Recorder::open(arenas.recorder.as_ref())?;
        Ok((Arc::new(recorder), load::load(config, arenas, progress)?))
    });
    let (recorder, loaded) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            outbox.send(&Event::LoadFailed(error.to_fault()))?;
            return Err(error.into());
        }
    };
    let Loaded {
        language,
        backend,
        scheduler,
        mut card,
    } = loaded;
    card.load_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let core = Core::new(backend, scheduler, card.fingerprint);
    let context = PrepareContext {
        language: &language,
        context_tokens: card.context_tokens,
        now_unix_seconds: 0,
    };
    outbox.send(&Event::Ready(Box::new(card)))?;
    serve(core, (context, recorder), socket, (commands, outbox))
}

fn out_of_turn(command: &Command) -> EngineError {
    let command = match command {
        Command::Load(_) => "load",
        Command::Submit { .. } => "submit",
        Command::Cancel { .. } => "cancel",
        Command::Shutdown => "shutdown",
        #[cfg(feature = "fault-injection")]
        Command::Inject(_) => "inject",
    };
    EngineError::OutOfTurn { command }
}

/// What the generator is told.
enum Message<'a> {
    Input(Input<'a>),
    /// No more commands: told to end, or the socket has ended, or it makes no sense.
    End(Result<(), EngineError>),
}

/// Serves requests with `core` until there are no more commands.
fn serve<'a, B: Backend>(
    core: Core<'a, B>,
    (context, recorder): (PrepareContext<'a>, Arc<Recorder>),
    socket: &UnixStream,
    (commands, outbox): (CommandReader, Outbox),
) -> Result<(), EngineError> {
    let (sender, inbox) = sync_channel(ENGINE_INBOX_MAX);
    let (jobs, job_inbox) = sync_channel(ENGINE_REQUESTS_MAX);
    // Owns all ends of the queues: they close when it is left, and the threads with them.
    std::thread::scope(move |scope| {
        // However this scope is left, the reader must not wait for more commands.
        let _ended = HangUp(socket);
        let reader_sender = sender.clone();
        std::thread::Builder::new()
            .name("commands".to_owned())
            .spawn_scoped(scope, move || read_all(commands, &reader_sender))
            .map_err(EngineError::Thread)?;
        std::thread::Builder::new()
            .name("prepare".to_owned())
            .stack_size(PREPARE_STACK_BYTES)
            .spawn_scoped(scope, {
                let recorder = Arc::clone(&recorder);
                move || {
                    let _lane = LaneUse::new(recorder, Lane::Prepare);
                    prepare_all(context, &job_inbox, &sender);
                }
            })
            .map_err(EngineError::Thread)?;
        let _lane = LaneUse::new(recorder, Lane::Generator);
        generate(core, &inbox, &jobs, outbox)
    })
}

/// Wakes the reader when it is dropped. The other direction ends with the process: a
/// supervisor that sees it end earlier takes the engine for broken and kills it.
struct HangUp<'a>(&'a UnixStream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown(Shutdown::Read) {
            tracing::debug!(%error, "the socket had ended already");
        }
    }
}

/// The reader: hands commands on until there are no more.
fn read_all(mut commands: CommandReader, inbox: &SyncSender<Message<'_>>) {
    // The reader is not used after a panic.
    let end = catch_unwind(AssertUnwindSafe(|| forward(&mut commands, inbox)));
    let end = end.unwrap_or(Err(EngineError::ReaderPanicked));
    if inbox.send(Message::End(end)).is_err() {
        tracing::debug!("the generator ended first");
    }
}

fn forward(
    commands: &mut CommandReader,
    inbox: &SyncSender<Message<'_>>,
) -> Result<(), EngineError> {
    while let Some(command) = commands.next()? {
        let input = match command {
            Command::Submit {
                id,
                request,
                resume,
            } => Input::Submit {
                id,
                request,
                resume,
            },
            Command::Cancel { id } => Input::Cancel { id },
            Command::Shutdown => return Ok(()),
            #[cfg(feature = "fault-injection")]
            injection @ Command::Inject(_) => return Err(out_of_turn(&injection)),
            load @ Command::Load(_) => return Err(out_of_turn(&load)),
        };
        if inbox.send(Message::Input(input)).is_err() {
            return Ok(());
        }
    }
    tracing::info!("the supervisor is gone");
    Ok(())
}

/// The preparation thread: jobs in, prepared requests out, in order.
fn prepare_all<'a>(
    context: PrepareContext<'a>,
    jobs: &Receiver<PrepareJob>,
    inbox: &SyncSender<Message<'a>>,
) {
    for job in jobs {
        if job.is_stale.load(Ordering::Relaxed) {
            continue;
        }
        let context = PrepareContext {
            now_unix_seconds: unix_seconds(),
            ..context
        };
        let result = run_job(&context, &job);
        let input = Input::Prepared {
            id: job.id,
            attempt: job.attempt,
            result,
        };
        if inbox.send(Message::Input(input)).is_err() {
            return;
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "templates show the date; nothing is measured with it"
)]
fn unix_seconds() -> i64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_epoch.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

#[expect(clippy::disallowed_methods, reason = "a shell reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// The generator: takes what has come, computes one step, sends what came of it. A core that
/// latches is replaced, and the other side told that its requests are gone.
fn generate<'a, B: Backend>(
    mut core: Core<'a, B>,
    inbox: &Receiver<Message<'a>>,
    jobs: &SyncSender<PrepareJob>,
    mut outbox: Outbox,
) -> Result<(), EngineError> {
    let started = now();
    loop {
        let mut next = if core.has_work() {
            inbox.try_recv().ok()
        } else {
            recording::idle();
            // The reader lives as long as the socket and says when it ends.
            Some(inbox.recv().unwrap_or(Message::End(Ok(()))))
        };
        // Bounded, so that a flood of commands cannot keep the step from being computed.
        let mut taken = 0;
        while let Some(message) = next {
            match message {
                Message::Input(input) => core.handle(input),
                Message::End(end) => {
                    outbox.send_all(&core.take_events())?;
                    return end;
                }
            }
            taken += 1;
            next = if taken < ENGINE_INBOX_MAX {
                inbox.try_recv().ok()
            } else {
                None
            };
        }
        hand_out(&mut core, jobs);
        let begun = now();
        while let Err(latched) = core.step(started.elapsed()) {
            let reason = latched
                .report
                .as_deref()
                .and_then(|report| report.lines().next());
            tracing::error!(cause = %latched.cause, reason, "the generator latched");
            outbox.send_all(&core.take_events())?;
            let renewed = core.renewed();
            outbox.send(&Event::Latched(latched))?;
            core = renewed?;
        }
        core.note_duration(begun.elapsed());
        outbox.send_all(&core.take_events())?;
    }
}

/// Passes jobs to the preparation thread, as many as its queue takes.
fn hand_out<B: Backend>(core: &mut Core<'_, B>, jobs: &SyncSender<PrepareJob>) {
    for job in core.take_jobs() {
        let (id, attempt) = (job.id, job.attempt);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = jobs.try_send(job) {
            let fault = Fault::Overloaded {
                resource: Overload::QueueFull,
                retry_after_s: RETRY_AFTER_S_MIN,
            };
            core.handle(Input::Prepared {
                id,
                attempt,
                result: Err(fault.into()),
            });
        }
    }
}

#[cfg(test)]
mod tests;
