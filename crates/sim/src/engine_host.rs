//! An engine process: the engine's core with its loop, threads and pipe played in virtual
//! time. It can be stopped between any two of its actions.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use relight_engine::core::{Core, Input, PrepareJob};
use relight_engine::language::Language;
use relight_engine::prepare::run_job;
use relight_engine::scheduler::SchedulerConfig;
use relight_protocol::{
    Command, Event, Fault, FrameDecoder, ModelCard, PROTOCOL_VERSION, Promise, frame,
};
use relight_supervisor::core::{EngineNumber, Exit};

use crate::ambient::{Ambient, Happening};
use crate::backend::SimBackend;
use crate::case::{CONTEXT_PAGES, context};
use crate::fault::{Birth, encode_lie};
use crate::quiet::quietly;
use crate::vocabulary;
use crate::wire::Wire;

const SIGABRT: i32 = 6;
/// Parts in which the model is loaded, and how long each takes.
const LOAD_PARTS: u64 = 3;
const LOAD_MS_MAX: u64 = 60;
const PREPARE_MS_MAX: u64 = 8;
/// What is the same for every model that runs here.
const FINGERPRINT: u128 = 1;

/// Sizes of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSize {
    pub(crate) pages: u32,
    pub(crate) scheduler: SchedulerConfig,
}

/// What the generator is told.
#[derive(Debug)]
enum Message<'a> {
    Input(Input<'a>),
    End,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EngineHost<'a> {
    pub(crate) number: EngineNumber,
    language: &'a Language,
    size: HostSize,
    birth: Birth,
    /// From `Ready` on.
    core: Option<Core<'a, SimBackend>>,
    loaded_parts: u64,
    commands: FrameDecoder,
    inbox: VecDeque<Message<'a>>,
    jobs: VecDeque<PrepareJob>,
    is_preparing: bool,
    /// A turn is planned, or a step is being computed.
    is_busy: bool,
    /// What the step that is being computed will have to say.
    unsaid: Vec<Event>,
    pub(crate) is_hung: bool,
    /// Something befell it that may look like a request's doing.
    pub(crate) is_tainted: bool,
    pub(crate) is_dead: bool,
    pub(crate) incoming: Wire,
    pub(crate) outgoing: Wire,
}

impl<'a> EngineHost<'a> {
    pub(crate) fn new(
        number: EngineNumber,
        language: &'a Language,
        size: HostSize,
        birth: Birth,
    ) -> Self {
        Self {
            number,
            language,
            size,
            birth,
            core: None,
            loaded_parts: 0,
            commands: FrameDecoder::default(),
            inbox: VecDeque::new(),
            jobs: VecDeque::new(),
            is_preparing: false,
            is_busy: false,
            unsaid: Vec::new(),
            is_hung: false,
            is_tainted: false,
            is_dead: false,
            incoming: Wire::default(),
            outgoing: Wire::default(),
        }
    }

    /// Whether it still does anything.
    fn acts(&self) -> bool {
        !self.is_dead && !self.is_hung
    }

    pub(crate) fn booted(&mut self, ambient: &mut Ambient) -> Result<(), Exit> {
        match self.birth {
            Birth::DiesBeforeHello => return Err(Exit::Code(1)),
            Birth::HangsBeforeHello => self.is_hung = true,
            _ => self.say(
                &[Event::Hello {
                    protocol_version: PROTOCOL_VERSION,
                    promise: Promise::Exact,
                }],
                ambient,
            ),
        }
        Ok(())
    }

    /// Bytes from the supervisor.
    pub(crate) fn arrived(&mut self, ambient: &mut Ambient) -> Result<(), Exit> {
        let Some(bytes) = self.incoming.arrive().filter(|_bytes| self.acts()) else {
            return Ok(());
        };
        self.commands.push(&bytes);
        loop {
            let command = self.commands.next_value::<Command>();
            match command.map_err(|_error| Exit::Code(1))? {
                Some(Command::Load(_)) => ambient.soon(LOAD_MS_MAX, Happening::Loads(self.number)),
                Some(Command::Submit {
                    id,
                    request,
                    resume,
                }) => self.inbox.push_back(Message::Input(Input::Submit {
                    id,
                    request,
                    resume,
                })),
                Some(Command::Cancel { id }) => {
                    self.inbox.push_back(Message::Input(Input::Cancel { id }));
                }
                Some(Command::Shutdown) if self.core.is_none() => return Err(Exit::Code(0)),
                Some(Command::Shutdown) => self.inbox.push_back(Message::End),
                None => break,
            }
        }
        self.wake(ambient);
        Ok(())
    }

    pub(crate) fn loads(&mut self, ambient: &mut Ambient) -> Result<(), Exit> {
        if !self.acts() {
            return Ok(());
        }
        self.loaded_parts += 1;
        match self.birth {
            Birth::DiesLoading if self.loaded_parts == 2 => return Err(Exit::Signal(SIGABRT)),
            Birth::HangsLoading if self.loaded_parts == 2 => {
                self.is_hung = true;
                return Ok(());
            }
            Birth::LacksMemory => {
                self.say(&[Event::LoadFailed(Fault::OutOfMemory)], ambient);
                return Err(Exit::Code(1));
            }
            _ => {}
        }
        if self.loaded_parts < LOAD_PARTS {
            let progress = Event::Loading {
                done_bytes: self.loaded_parts,
                total_bytes: LOAD_PARTS,
            };
            self.say(&[progress], ambient);
            ambient.soon(LOAD_MS_MAX, Happening::Loads(self.number));
            return Ok(());
        }
        self.core = Some(self.new_core());
        self.say(&[Event::Ready(Box::new(self.card()))], ambient);
        self.wake(ambient);
        Ok(())
    }

    fn new_core(&self) -> Core<'a, SimBackend> {
        let backend = SimBackend::new(self.size.pages);
        Core::new(backend, self.size.scheduler, FINGERPRINT)
    }

    /// The generator's turn: what has come is taken in, and a step begun if there is work.
    pub(crate) fn turns(&mut self, ambient: &mut Ambient) -> Result<(), Exit> {
        if !self.acts() {
            return Ok(());
        }
        let Some(core) = self.core.as_mut() else {
            return Ok(());
        };
        while let Some(message) = self.inbox.pop_front() {
            match message {
                Message::Input(input) => quietly(|| core.handle(input)),
                Message::End => return Err(Exit::Code(0)),
            }
        }
        self.jobs.extend(core.take_jobs());
        let has_work = core.has_work();
        if has_work {
            core.backend_mut().fault = ambient.faults.take_step();
            self.is_tainted |= core.backend_mut().fault.is_some();
        }
        let now = Duration::from_millis(ambient.now_ms());
        let step = quietly(|| core.step(now));
        self.unsaid = core.take_events();
        let rows = core.backend_mut().rows as u64;
        if let Err(latch) = step {
            ambient.note(format_args!("{:?} latched: {latch}", self.number));
            return Err(Exit::Code(1));
        }
        self.prepare_next(ambient);
        let longest_ms = if has_work { 2 + rows / 8 } else { 1 };
        ambient.soon(longest_ms, Happening::Stepped(self.number));
        Ok(())
    }

    /// A step is done: its events go out with one write.
    pub(crate) fn stepped(&mut self, ambient: &mut Ambient) {
        if !self.acts() {
            return;
        }
        self.is_busy = false;
        let events = std::mem::take(&mut self.unsaid);
        self.say(&events, ambient);
        self.check_books(ambient);
        if self.core.as_ref().is_some_and(Core::has_work) || !self.inbox.is_empty() {
            self.wake(ambient);
        }
    }

    /// The preparation thread has done its oldest job.
    pub(crate) fn prepared(&mut self, ambient: &mut Ambient) {
        if !self.acts() {
            return;
        }
        self.is_preparing = false;
        if let Some(job) = self.jobs.pop_front()
            && !job.is_stale.load(Ordering::Relaxed)
        {
            let result = quietly(|| run_job(&context(self.language), &job));
            let input = Input::Prepared { id: job.id, result };
            self.inbox.push_back(Message::Input(input));
            self.wake(ambient);
        }
        self.prepare_next(ambient);
    }

    fn prepare_next(&mut self, ambient: &mut Ambient) {
        if !self.is_preparing && !self.jobs.is_empty() {
            self.is_preparing = true;
            ambient.soon(PREPARE_MS_MAX, Happening::Prepared(self.number));
        }
    }

    fn wake(&mut self, ambient: &mut Ambient) {
        if self.core.is_some() && !self.is_busy {
            self.is_busy = true;
            ambient.agenda.after(0, Happening::Turns(self.number));
        }
    }

    /// Writes events to the pipe, or what a liar makes of them.
    fn say(&mut self, events: &[Event], ambient: &mut Ambient) {
        let mut bytes = Vec::new();
        for event in events {
            let lie = ambient.faults.lie.take();
            let encoded = match lie {
                None => frame::encode(event, &mut bytes),
                Some(lie) => encode_lie(lie, event, &mut bytes, &mut ambient.random).map(|still| {
                    self.is_tainted |= still.is_none();
                    ambient.faults.lie = still;
                }),
            };
            if let Err(error) = encoded {
                ambient.breach(format_args!("an event does not fit a frame: {error}"));
            }
        }
        let now_ms = ambient.now_ms();
        for arrival_ms in self.outgoing.send(now_ms, &bytes, &mut ambient.random) {
            let arrival = Happening::ToSupervisor(self.number);
            ambient.agenda.at(arrival_ms, arrival);
        }
    }

    /// Pages and slots add up at all times, and are all free when there is nothing to do.
    pub(crate) fn check_books(&mut self, ambient: &mut Ambient) {
        let Some(core) = self.core.as_mut() else {
            return;
        };
        if let Err(error) = core.audit() {
            ambient.breach(format_args!("the audit fails: {error}"));
        }
        let is_idle = !core.has_work();
        let stats = core.scheduler_mut().stats();
        if is_idle && (stats.pages_used, stats.running, stats.waiting) != (0, 0, 0) {
            ambient.breach(format_args!("an idle engine holds something: {stats:?}"));
        }
    }

    /// Whether it has nothing left to do.
    pub(crate) fn is_idle(&self) -> bool {
        let has_work = self.core.as_ref().is_none_or(Core::has_work);
        !has_work && self.acts() && self.inbox.is_empty() && self.jobs.is_empty() && !self.is_busy
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            name: "sim".into(),
            architecture: "sim".into(),
            quantization: "F32".into(),
            fingerprint: FINGERPRINT,
            parameters: 1,
            vocabulary: u32::try_from(vocabulary::SIZE).unwrap_or(u32::MAX),
            context_tokens: context(self.language).context_tokens,
            context_tokens_trained: 64 * CONTEXT_PAGES,
            slots: u16::try_from(self.size.scheduler.slots).unwrap_or(u16::MAX),
            pages: self.size.pages,
            page_bytes: 1,
            weights_bytes: 1,
            threads: 1,
            kernels: "sim".into(),
            has_chat_template: false,
            load_ms: 1,
        }
    }
}
