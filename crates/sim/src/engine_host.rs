//! An engine process: the engine's core with its loop, threads and pipe played in virtual
//! time. It can be stopped between any two of its actions.

use std::sync::Arc;

use relight_engine::arena::Recorder;
use relight_engine::core::{Core, Input};
use relight_engine::language::Language;
use relight_engine::scheduler::SchedulerConfig;
use relight_protocol::{
    Command, Event, Fault, FrameDecoder, ModelCard, PROTOCOL_VERSION, Promise, frame,
};
use relight_supervisor::Lanes;
use relight_supervisor::core::{EngineNumber, Exit};

use crate::ambient::{Ambient, Happening};
use crate::backend::SimBackend;
use crate::case::{CONTEXT_PAGES, context};
use crate::fault::{Birth, encode_lie};
use crate::generator::{Ending, Generator, Message};
use crate::memory::{FINGERPRINT, Memory};
use crate::vocabulary;
use crate::wire::Wire;

const SIGABRT: i32 = 6;
/// Parts in which the model is loaded, and how long each takes.
const LOAD_PARTS: u64 = 3;
const LOAD_MS_MAX: u64 = 60;

/// Sizes of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSize {
    pub(crate) pages: u32,
    pub(crate) scheduler: SchedulerConfig,
}

/// What an engine is started with.
#[derive(Clone, Debug)]
pub(crate) struct HostParts<'a> {
    pub(crate) language: &'a Language,
    pub(crate) size: HostSize,
    pub(crate) memory: Memory,
    pub(crate) recorder: Arc<Recorder>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EngineHost<'a> {
    pub(crate) number: EngineNumber,
    parts: HostParts<'a>,
    birth: Birth,
    /// From `Ready` on.
    generator: Option<Generator<'a>>,
    loaded_parts: u64,
    commands: FrameDecoder,
    pub(crate) is_hung: bool,
    /// What the recorder says ever since it hangs.
    frozen: Option<Lanes>,
    pub(crate) is_dead: bool,
    pub(crate) incoming: Wire,
    pub(crate) outgoing: Wire,
}

impl<'a> EngineHost<'a> {
    pub(crate) fn new(number: EngineNumber, parts: HostParts<'a>, birth: Birth) -> Self {
        Self {
            number,
            parts,
            birth,
            generator: None,
            loaded_parts: 0,
            commands: FrameDecoder::default(),
            is_hung: false,
            frozen: None,
            is_dead: false,
            incoming: Wire::default(),
            outgoing: Wire::default(),
        }
    }

    /// Whether it still does anything.
    fn acts(&self) -> bool {
        !self.is_dead && !self.is_hung
    }

    /// Whether the supervisor has a reason to end it.
    pub(crate) fn may_be_killed(&self) -> bool {
        self.is_hung || self.is_dead || self.birth != Birth::Healthy
    }

    /// It does nothing from now on.
    pub(crate) fn hang(&mut self) {
        self.frozen = Some(self.lanes());
        self.is_hung = true;
    }

    /// What the recorder says at this moment.
    pub(crate) fn lanes(&self) -> Lanes {
        if let Some(frozen) = &self.frozen {
            return frozen.clone();
        }
        let generator = self.generator.as_ref();
        generator.map(Generator::lanes).unwrap_or_default()
    }

    pub(crate) fn booted(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        match self.birth {
            Birth::DiesBeforeHello => return Err(Ending::Exit(Exit::Code(1))),
            Birth::HangsBeforeHello => return Err(Ending::Hang),
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
    pub(crate) fn arrived(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        let Some(bytes) = self.incoming.arrive().filter(|_bytes| self.acts()) else {
            return Ok(());
        };
        self.commands.push(&bytes);
        loop {
            let command = self.commands.next_value::<Command>();
            let command = command.map_err(|_error| Ending::Exit(Exit::Code(1)))?;
            let message = match command {
                Some(Command::Load(_)) => {
                    ambient.soon(LOAD_MS_MAX, Happening::Loads(self.number));
                    continue;
                }
                Some(Command::Submit {
                    id,
                    request,
                    resume,
                }) => Message::Input(Input::Submit {
                    id,
                    request,
                    resume,
                }),
                Some(Command::Cancel { id }) => Message::Input(Input::Cancel { id }),
                // To end, as there is nothing else.
                Some(_) => Message::End,
                None => return Ok(()),
            };
            match &mut self.generator {
                Some(generator) => generator.push(message, ambient),
                None => return Err(Ending::Exit(Exit::Code(0))),
            }
        }
    }

    pub(crate) fn loads(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        if !self.acts() {
            return Ok(());
        }
        self.loaded_parts += 1;
        match self.birth {
            Birth::DiesLoading if self.loaded_parts == 2 => {
                return Err(Ending::Exit(Exit::Signal(SIGABRT)));
            }
            Birth::HangsLoading if self.loaded_parts == 2 => return Err(Ending::Hang),
            Birth::LacksMemory => {
                self.say(&[Event::LoadFailed(Fault::OutOfMemory)], ambient);
                return Err(Ending::Exit(Exit::Code(1)));
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
        let HostParts {
            language,
            size,
            memory,
            recorder,
        } = self.parts.clone();
        let backend = SimBackend::new(memory, Some(Arc::clone(&recorder)));
        let core = Core::new(backend, size.scheduler, FINGERPRINT);
        self.generator = Some(Generator::new(self.number, language, recorder, core));
        self.say(&[Event::Ready(Box::new(self.card()))], ambient);
        Ok(())
    }

    pub(crate) fn turns(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        let acts = self.acts();
        match self.generator.as_mut().filter(|_generator| acts) {
            Some(generator) => generator.turns(ambient),
            None => Ok(()),
        }
    }

    /// A step is done: its events go out with one write.
    pub(crate) fn stepped(&mut self, ambient: &mut Ambient) {
        let acts = self.acts();
        if let Some(generator) = self.generator.as_mut().filter(|_generator| acts) {
            let events = generator.stepped(ambient);
            generator.check_books(ambient);
            self.say(&events, ambient);
        }
    }

    pub(crate) fn prepared(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        let acts = self.acts();
        match self.generator.as_mut().filter(|_generator| acts) {
            Some(generator) => generator.prepared(ambient),
            None => Ok(()),
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
                    ambient.is_tainted |= still.is_none();
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

    pub(crate) fn check_books(&mut self, ambient: &mut Ambient) {
        if let Some(generator) = &mut self.generator {
            generator.check_books(ambient);
        }
    }

    /// Whether it has nothing left to do, and would do it.
    pub(crate) fn is_idle(&self) -> bool {
        self.acts() && self.generator.as_ref().is_some_and(Generator::is_idle)
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            name: "sim".into(),
            architecture: "sim".into(),
            quantization: "F32".into(),
            fingerprint: FINGERPRINT,
            parameters: 1,
            vocabulary: u32::try_from(vocabulary::SIZE).unwrap_or(u32::MAX),
            context_tokens: context(self.parts.language).context_tokens,
            context_tokens_trained: 64 * CONTEXT_PAGES,
            slots: u16::try_from(self.parts.size.scheduler.slots).unwrap_or(u16::MAX),
            pages: self.parts.size.pages,
            page_bytes: 1,
            weights_bytes: 1,
            threads: 1,
            kernels: "sim".into(),
            speculation: relight_protocol::Speculation::Off,
            kv_type: relight_protocol::KvType::F16,
            has_chat_template: false,
            load_ms: 1,
        }
    }
}
