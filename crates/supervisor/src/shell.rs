//! The supervisor's thread: clocks, channels, the pipe and the child, around the core.
//!
//! The thread runs a runtime of its own, so that neither a busy HTTP server nor a stuck task
//! there delays it. It also lives as long as the supervisor, which matters because the
//! kernel's parent-death signal follows the thread that started the engine.

use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use relight_protocol::{Command, Event, FrameError, RequestId, limits};
use tokio::sync::{mpsc, oneshot, watch};

use crate::arenas::Arenas;
use crate::clock::{now, unix_ms};
use crate::config::{EngineCommand, SupervisorConfig};
use crate::core::{Action, Core, EngineNumber, Input};
use crate::engine_process::EngineProcess;
use crate::handle::{Control, DrainReport, Message, Report, Submission};
use crate::invariant::invariant;
use crate::oom_counter::OomCounter;
use crate::stream::{RequestFailure, StreamEvent, StreamSender};

/// Messages taken in before the engine is looked at again.
const MESSAGES_PER_TURN_MAX: usize = 256;

/// Where messages come in.
#[derive(Debug)]
pub(crate) struct Inlets {
    pub(crate) messages: mpsc::Receiver<Message>,
    pub(crate) controls: mpsc::Receiver<Control>,
}

/// Starts the thread.
pub(crate) fn start(
    config: SupervisorConfig,
    arenas: Arenas,
    inlets: Inlets,
    reports: watch::Sender<Report>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut engine = config.engine;
    engine.arenas = Some(arenas.fds());
    let shell = Shell {
        core: Core::new(engine, config.bounds),
        arenas,
        oom_counter: OomCounter::find(),
        oom_kills: None,
        command: config.command,
        started: now(),
        process: None,
        streams: HashMap::new(),
        replies: HashMap::new(),
        inputs: Vec::new(),
        actions: Vec::new(),
        is_report_due: true,
        reports,
        drained: Vec::new(),
        stop: None,
    };
    std::thread::Builder::new()
        .name("supervisor".into())
        .spawn(move || runtime.block_on(shell.run(inlets)))
}

/// The core and everything it acts on.
#[derive(Debug)]
struct Shell {
    core: Core,
    /// Kept until the end: every engine maps them through this process.
    arenas: Arenas,
    oom_counter: OomCounter,
    /// The count when the engine was started.
    oom_kills: Option<u64>,
    command: EngineCommand,
    started: Instant,
    process: Option<EngineProcess>,
    /// One per entry of the ledger.
    streams: HashMap<RequestId, StreamSender>,
    /// Submissions that the core has not decided on.
    replies: HashMap<RequestId, oneshot::Sender<Result<(), RequestFailure>>>,
    /// From the engine, not taken in yet.
    inputs: Vec<Input>,
    actions: Vec<Action>,
    is_report_due: bool,
    reports: watch::Sender<Report>,
    /// Who waits for the end of the shutdown.
    drained: Vec<oneshot::Sender<DrainReport>>,
    stop: Option<DrainReport>,
}

impl Shell {
    async fn run(mut self, mut inlets: Inlets) {
        self.feed(Input::Start { unix_ms: unix_ms() });
        while self.stop.is_none() {
            let deadline_ms = self.core.next_deadline_ms();
            self.wait(&mut inlets, deadline_ms).await;
            for mut input in std::mem::take(&mut self.inputs) {
                if let Input::EngineExited { end, .. } = &mut input {
                    self.process = None;
                    end.lanes = self.arenas.lanes();
                    end.was_oom_killed = self.was_oom_killed();
                }
                self.feed(input);
            }
            if self.now_ms() >= deadline_ms {
                self.look();
                self.feed(Input::Tick);
            }
        }
        self.end().await;
    }

    fn was_oom_killed(&self) -> bool {
        let before_and_after = self.oom_kills.zip(self.oom_counter.count());
        before_and_after.is_some_and(|(before, after)| after > before)
    }

    /// Has the core see what the engine is at.
    fn look(&mut self) {
        let engine = self.process.as_ref().map(EngineProcess::number);
        if let (Some(engine), Some(lanes)) = (engine, self.arenas.lanes()) {
            let lanes = Box::new(lanes);
            self.feed(Input::Looked { engine, lanes });
        }
    }

    /// Waits for whatever comes first and takes it in.
    async fn wait(&mut self, inlets: &mut Inlets, deadline_ms: u64) {
        let deadline = self.started.checked_add(Duration::from_millis(deadline_ms));
        let deadline = deadline.unwrap_or(self.started);
        let Self {
            process, inputs, ..
        } = self;
        let engine = async {
            match process {
                Some(process) => process.progress(inputs).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = inlets.messages.recv() => match message {
                Some(message) => {
                    self.take(message);
                    for _ in 1..MESSAGES_PER_TURN_MAX {
                        let Ok(message) = inlets.messages.try_recv() else { break };
                        self.take(message);
                    }
                }
                // Nobody holds a handle or a stream any more.
                None => self.feed(Input::Shutdown { drain_ms: 0 }),
            },
            Some(control) = inlets.controls.recv() => self.obey(control),
            () = engine => {}
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
    }

    fn obey(&mut self, control: Control) {
        match control {
            Control::Shutdown { drain, reply } => {
                self.drained.push(reply);
                let drain_ms = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
                self.feed(Input::Shutdown { drain_ms });
            }
            #[cfg(feature = "fault-injection")]
            Control::Inject { injection, reply } => {
                self.feed(Input::Inject(injection));
                reply.send(()).ok();
            }
            Control::Lift { fingerprint, reply } => {
                let lifted = self.core.lift(fingerprint);
                self.is_report_due = true;
                self.publish();
                // Whoever asked may be gone; the sentence is lifted all the same.
                reply.send(lifted).ok();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => {
                let Submission {
                    id,
                    request,
                    fingerprint,
                    stream,
                    reply,
                } = *submission;
                self.streams.insert(id, stream);
                self.replies.insert(id, reply);
                self.feed(Input::Submit {
                    id,
                    request,
                    fingerprint,
                });
            }
            Message::Cancel { id } => {
                self.streams.remove(&id);
                self.feed(Input::Cancel { id });
            }
        }
    }

    /// Gives the core one input and does what follows from it. Reports come first, so that
    /// whoever has seen a request end also sees it counted.
    fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.is_report_due |= !is_routine(&input);
            let now_ms = self.now_ms();
            self.core.handle(now_ms, input);
            self.publish();
            let mut actions = std::mem::take(&mut self.actions);
            self.core.take_actions(&mut actions);
            for action in actions.drain(..) {
                inputs.extend(self.carry_out(action));
            }
            self.actions = actions;
        }
    }

    /// Does one action. What the core must know about how it went is returned.
    fn carry_out(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Spawn { engine } => Some(self.spawn(engine)),
            Action::Send { engine, command } => self.send(engine, &command),
            Action::Kill { engine } => {
                self.process_of(engine).map(EngineProcess::kill);
                None
            }
            Action::Admit { id } => {
                self.reply(id, Ok(()));
                None
            }
            Action::Refuse { id, failure } => {
                self.streams.remove(&id);
                self.reply(id, Err(failure));
                None
            }
            Action::Deliver { id, event } => self.deliver(id, event),
            Action::Stop { report } => {
                self.stop = Some(report);
                None
            }
        }
    }

    fn spawn(&mut self, engine: EngineNumber) -> Input {
        // The former one is gone, or given up: then it is killed once more on drop.
        self.process = None;
        self.arenas.clear_recorder();
        self.oom_kills = self.oom_counter.count();
        match EngineProcess::spawn(&self.command, engine) {
            Ok(process) => {
                let pid = process.pid().unwrap_or_default();
                self.process = Some(process);
                Input::EngineSpawned { engine, pid }
            }
            Err(error) => Input::SpawnFailed {
                engine,
                message: error.to_string(),
            },
        }
    }

    fn send(&mut self, engine: EngineNumber, command: &Command) -> Option<Input> {
        let error: FrameError = self.process_of(engine)?.send(command).err()?;
        match command {
            Command::Submit { id, .. } => Some(Input::SubmitTooLarge { id: *id }),
            #[cfg(feature = "fault-injection")]
            Command::Inject(_) => Some(Input::PipeBroken { engine, error }),
            Command::Load(_) | Command::Cancel { .. } | Command::Shutdown => {
                Some(Input::PipeBroken { engine, error })
            }
        }
    }

    fn process_of(&mut self, engine: EngineNumber) -> Option<&mut EngineProcess> {
        self.process
            .as_mut()
            .filter(|process| process.number() == engine)
    }

    fn reply(&mut self, id: RequestId, answer: Result<(), RequestFailure>) {
        let reply = self.replies.remove(&id);
        if invariant!(reply.is_some(), %id, "a submission is answered twice") {
            // A caller that is gone by now has dropped its stream too, which cancels.
            reply.map(|reply| reply.send(answer).is_ok());
        }
    }

    fn deliver(&mut self, id: RequestId, event: StreamEvent) -> Option<Input> {
        if event.is_last() {
            if let Some(stream) = self.streams.remove(&id) {
                stream.finish(event);
            }
            return None;
        }
        let stream = self.streams.get_mut(&id)?;
        let too_slow = stream.push(event).is_err();
        too_slow.then_some(Input::ReaderTooSlow { id })
    }

    fn publish(&mut self) {
        let published = now();
        let age = published.saturating_duration_since(self.reports.borrow().published);
        let is_old = age >= Duration::from_millis(limits::SUPERVISOR_TICK_MS);
        if !is_old && !self.is_report_due {
            return;
        }
        self.is_report_due = false;
        self.reports.send_replace(Report {
            health: self.core.health(),
            snapshot: self.core.snapshot(),
            faults: self.core.faults(),
            sentences: self.core.sentences(),
            published,
            published_ms: self.now_ms(),
            hopeless: self.core.hopeless(),
        });
    }

    /// The engine goes before anybody is told that the supervisor has ended.
    async fn end(mut self) {
        if let Some(process) = &mut self.process {
            let bound = Duration::from_millis(limits::ENGINE_EXIT_MS_MAX);
            if tokio::time::timeout(bound, process.reap()).await.is_err() {
                tracing::error!(pid = process.pid(), "the engine does not go away");
            }
        }
        self.is_report_due = true;
        self.publish();
        for reply in self.drained {
            if let (Some(report), false) = (self.stop, reply.is_closed()) {
                reply.send(report).ok();
            }
        }
    }

    fn now_ms(&self) -> u64 {
        let elapsed = now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Inputs that come once per token and change nothing that must be published at once.
fn is_routine(input: &Input) -> bool {
    matches!(
        input,
        Input::EngineEvent {
            event: Event::Delta(_)
                | Event::Accepted(_)
                | Event::Started(_)
                | Event::ChoiceFinished(_),
            ..
        } | Input::Looked { .. }
    )
}
