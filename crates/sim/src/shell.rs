//! The supervisor's shell, played: its core is fed, and what it wants done is done, in the
//! order in which the real shell does it.

use std::sync::Arc;

use relight_engine::arena::Recorder;
use relight_protocol::{Command, Event, Fault, FrameDecoder, Overload, RequestId, frame};
use relight_supervisor::StreamEvent;
use relight_supervisor::core::{Action, EngineNumber, Exit, Input};

use crate::ambient::{Ambient, Happening};
use crate::client::Stage;
use crate::engine_host::EngineHost;
use crate::fault::Birth;
use crate::world::World;

const SIGKILL: i32 = 9;
const BOOT_MS_MAX: u64 = 20;
const DAMAGED_BITS: usize = 16;

impl World<'_> {
    /// One wake-up of the shell: an input, then a tick if one is due.
    pub(crate) fn feed_and_tick(&mut self, input: Input) {
        self.feed(input);
        self.tick_if_due();
    }

    pub(crate) fn tick_if_due(&mut self) {
        if self.ambient.now_ms() >= self.deadline_ms {
            if let Some(host) = &self.host {
                let (engine, lanes) = (host.number, Box::new(host.lanes()));
                self.feed(Input::Looked { engine, lanes });
            }
            self.feed(Input::Tick);
        }
        self.deadline_ms = self.core.next_deadline_ms();
        self.ambient.agenda.at(self.deadline_ms, Happening::Tick);
    }

    /// Gives the core one input and does what follows from it, in the shell's order.
    pub(crate) fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            note_input(&mut self.ambient, &input);
            self.core.handle(self.ambient.now_ms(), input);
            let mut actions = Vec::new();
            self.core.take_actions(&mut actions);
            for action in actions {
                note_action(&mut self.ambient, &action);
                inputs.extend(self.carry_out(action));
            }
        }
    }

    fn carry_out(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Spawn { engine } => return Some(self.spawn(engine)),
            Action::Send { engine, command } => self.send(engine, &command),
            Action::Kill { engine } => {
                if self.host_of(engine).is_some() {
                    self.judge_kill();
                    self.die(Exit::Signal(SIGKILL));
                }
            }
            Action::Admit { id } => {
                if let Some(client) = self.client(id) {
                    client.stage = Stage::Open;
                }
            }
            Action::Refuse { id, failure } => self.refused(id, &failure.fault),
            Action::Deliver { id, event } => return self.deliver(id, &event),
            Action::Stop { report } => self.stopped = Some(report),
        }
        None
    }

    fn spawn(&mut self, engine: EngineNumber) -> Input {
        let now_ms = self.ambient.now_ms();
        let birth = self.ambient.faults.birth(now_ms, &mut self.ambient.random);
        self.ambient.note(format_args!("birth: {birth:?}"));
        let hangs = [Birth::HangsBeforeHello, Birth::HangsLoading];
        self.ambient.has_hung |= hangs.contains(&birth);
        self.events = FrameDecoder::default();
        self.is_read_over = false;
        // One that was given up before it was reaped has died all the same.
        self.deaths_ms
            .extend(self.host.as_ref().map(|_host| now_ms));
        if birth == Birth::NotSpawned {
            self.host = None;
            self.deaths_ms.push(now_ms);
            let message = "told to fail".into();
            return Input::SpawnFailed { engine, message };
        }
        self.ambient.is_tainted = false;
        self.ambient.is_stalled = false;
        self.ambient.tainted_latches = 0;
        match Recorder::open(None) {
            Ok(recorder) => self.parts.recorder = Arc::new(recorder),
            Err(error) => self.ambient.breach(format_args!("no recorder: {error}")),
        }
        if std::mem::take(&mut self.ambient.faults.damage) {
            for _bit in 0..DAMAGED_BITS {
                self.parts.memory.damage(&mut self.ambient.random);
            }
        }
        self.host = Some(EngineHost::new(engine, self.parts.clone(), birth));
        self.ambient.soon(BOOT_MS_MAX, Happening::Booted(engine));
        Input::EngineSpawned { engine, pid: 1 }
    }

    fn send(&mut self, engine: EngineNumber, command: &Command) {
        let mut bytes = Vec::new();
        if let Err(error) = frame::encode(command, &mut bytes) {
            self.ambient
                .breach(format_args!("a command does not fit a frame: {error}"));
        }
        let Some(host) = self.host.as_mut().filter(|host| host.number == engine) else {
            return;
        };
        let now_ms = self.ambient.agenda.now_ms();
        for arrival_ms in host.incoming.send(now_ms, &bytes, &mut self.ambient.random) {
            self.ambient
                .agenda
                .at(arrival_ms, Happening::ToEngine(engine));
        }
    }

    fn refused(&mut self, id: RequestId, fault: &Fault) {
        let is_draining = self.is_draining;
        let Some(&index) = self.by_id.get(&id) else {
            return self
                .ambient
                .breach(format_args!("{id} was never asked for"));
        };
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let wait_ms = match fault {
            Fault::Overloaded {
                resource: Overload::QueueFull,
                retry_after_s,
            } => u64::from(*retry_after_s) * 1000,
            Fault::EngineUnavailable => 1000,
            _ => 0,
        };
        if wait_ms > 0 && !is_draining {
            // It comes again, as it was asked to.
            self.ambient.soon(wait_ms, Happening::Arrives(index));
        } else {
            client.stage = Stage::Refused(fault.clone());
        }
        self.judge_refusal(id, fault);
    }

    fn deliver(&mut self, id: RequestId, event: &StreamEvent) -> Option<Input> {
        let events_max = self.bounds.reader_events_max;
        let entry = self.core.ledger().entry(id);
        let cached_tokens = entry.map(|entry| entry.usage().cached_tokens);
        let Some(client) = self.client(id) else {
            self.ambient
                .breach(format_args!("an event for {id}, which nobody asked for"));
            return None;
        };
        if client.stage == Stage::Cancelled {
            // It has hung up and will read none of it.
            return None;
        }
        if !event.is_last() {
            if !client.buffer(events_max) {
                return Some(Input::ReaderTooSlow { id });
            }
            if client.has_gap {
                return None;
            }
        }
        if let StreamEvent::Delta(_) = event {
            client.cached_tokens = client.cached_tokens.or(cached_tokens);
        }
        if let Err(what) = client.take(event) {
            self.ambient.breach(format_args!("{id}: {what}: {event:?}"));
        }
        if let StreamEvent::Failed(failure) = event {
            self.judge_failure(id, &failure.fault);
        }
        None
    }
}

/// Requests and models are long; their ids say enough.
fn note_input(ambient: &mut Ambient, input: &Input) {
    match input {
        Input::Tick | Input::Looked { .. } => {}
        Input::Submit { id, .. } => ambient.note(format_args!("> submit {id}")),
        Input::EngineEvent { engine, event } => match event {
            Event::Ready(_) => ambient.note(format_args!("> {engine:?} ready")),
            Event::Accepted(accepted) => {
                ambient.note(format_args!("> {engine:?} accepted {}", accepted.id));
            }
            Event::Stats(_) => ambient.note(format_args!("> {engine:?} stats")),
            event => ambient.note(format_args!("> {engine:?} {event:?}")),
        },
        input => ambient.note(format_args!("> {input:?}")),
    }
}

fn note_action(ambient: &mut Ambient, action: &Action) {
    match action {
        Action::Send { engine, command } => match command {
            Command::Load(_) => ambient.note(format_args!("< {engine:?} load")),
            Command::Submit { id, resume, .. } => {
                let choices = resume.iter().flat_map(|resume| &resume.choices);
                let tokens: usize = choices.map(|choice| choice.tokens.len()).sum();
                let is_resumed = resume.is_some();
                ambient.note(format_args!(
                    "< {engine:?} submit {id} {is_resumed} {tokens}"
                ));
            }
            command => ambient.note(format_args!("< {engine:?} {command:?}")),
        },
        action => ambient.note(format_args!("< {action:?}")),
    }
}
