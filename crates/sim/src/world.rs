//! The run: the supervisor's core with its shell played, clients, and at most one engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use relight_engine::arena::{ArenaError, Recorder};
use relight_engine::scheduler::{Drafting, SchedulerConfig};
use relight_protocol::{EngineConfig, Event, FrameDecoder, RequestId, limits};
use relight_supervisor::core::{Core, EngineEnd, EngineNumber, Exit, Input};
use relight_supervisor::{Bounds, DrainReport, Lanes, Status};

use crate::ambient::{Ambient, Happening};
use crate::case::{CONTEXT_PAGES, Catalogue};
use crate::client::{Client, Stage};
use crate::clock::Agenda;
use crate::engine_host::{EngineHost, HostParts, HostSize};
use crate::fault::{Faults, Mishap};
use crate::generator::Ending;
use crate::memory::Memory;
use crate::poison::Poisons;
use crate::random::Random;
use crate::trace::Trace;

/// Nothing goes wrong after this.
const CALM_MS: u64 = 6_000;
/// A process is reaped this soon after its death, if all is well.
const REAP_MS_MAX: u64 = 10;
const DRAIN_MS: u64 = 20_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) ambient: Ambient,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) core: Core,
    pub(crate) bounds: Bounds,
    /// When the shell ticks at the latest.
    pub(crate) deadline_ms: u64,
    pub(crate) parts: HostParts<'a>,
    pub(crate) host: Option<EngineHost<'a>>,
    pub(crate) events: FrameDecoder,
    pub(crate) is_read_over: bool,
    pub(crate) clients: Vec<Client<'a>>,
    pub(crate) by_id: BTreeMap<RequestId, usize>,
    ids: u64,
    /// Deaths so far, as the supervisor was told.
    pub(crate) deaths_ms: Vec<u64>,
    /// How the last engine that was reaped had ended.
    pub(crate) last_exit: Option<Exit>,
    /// Everything had ended before the front was asked to end.
    pub(crate) has_had_calm: bool,
    /// Those of the process before this run.
    pub(crate) invariant_breaches: u64,
    has_latecomer: bool,
    pub(crate) is_draining: bool,
    pub(crate) stopped: Option<DrainReport>,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        catalogue: &'a Catalogue,
        seed: u64,
        keeps_text: bool,
    ) -> Result<Self, ArenaError> {
        let mut random = Random::new(seed);
        let faults = Faults::draw(&mut random, CALM_MS);
        let bounds = Bounds {
            queue_requests_max: random.one_of(100, &[100, 1]),
            engine_requests_max: random.one_of(100, &[100, 2]),
            reader_events_max: random.one_of(1000, &[1000, 6]),
            ..Bounds::default()
        };
        let size = HostSize {
            pages: 3 * CONTEXT_PAGES + u32::try_from(random.below(6)).unwrap_or(0),
            scheduler: SchedulerConfig {
                slots: 1 + random.index(4),
                batch_rows: 1 + random.index(80),
                chunk_rows: random.one_of(7, &[64, 512]),
                drafting: random.one_of(
                    Drafting::Adaptive,
                    &[Drafting::Never, Drafting::Eager, Drafting::Eager],
                ),
            },
        };
        let parts = HostParts {
            language: catalogue.language(),
            size,
            memory: Memory::lasting(size.pages),
            recorder: Arc::new(Recorder::open(None)?),
        };
        let mut world = Self {
            ambient: Ambient {
                agenda: Agenda::new(),
                random,
                faults,
                poisons: Poisons::default(),
                gone_ms: BTreeMap::new(),
                is_tainted: false,
                is_stalled: false,
                has_hung: false,
                tainted_latches: 0,
                mishap_ends: 0,
                trace: Trace::new(keeps_text),
                breaches: Vec::new(),
            },
            catalogue,
            core: Core::new(engine_config(), bounds),
            bounds,
            deadline_ms: 0,
            parts,
            host: None,
            events: FrameDecoder::default(),
            is_read_over: false,
            clients: Vec::new(),
            by_id: BTreeMap::new(),
            ids: 0,
            deaths_ms: Vec::new(),
            last_exit: None,
            has_had_calm: false,
            invariant_breaches: 0,
            has_latecomer: false,
            is_draining: false,
            stopped: None,
        };
        world.invariant_breaches = world.core.snapshot().invariant_breaches_total;
        world.plan();
        Ok(world)
    }

    /// From the start to the end of everything.
    pub(crate) fn run(&mut self) {
        self.feed(Input::Start { unix_ms: 0 });
        while self.stopped.is_none() && self.ambient.breaches.is_empty() {
            let Some(happening) = self.ambient.agenda.advance() else {
                break;
            };
            if let Happening::Deadline = happening
                && self.ambient.now_ms() >= self.settled_by_ms()
            {
                self.report_unfinished();
                break;
            }
            self.happen(happening);
            self.end_if_done();
        }
        self.check_end();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick => self.tick_if_due(),
            Happening::Arrives(client) => self.submit(client),
            Happening::Reads(client) => self.read(client),
            Happening::HangsUp(client) => self.hang_up(client),
            Happening::Booted(engine) => self.engine(engine, EngineHost::booted),
            Happening::Loads(engine) => self.engine(engine, EngineHost::loads),
            Happening::Turns(engine) => self.engine(engine, EngineHost::turns),
            Happening::ToEngine(engine) => self.engine(engine, EngineHost::arrived),
            Happening::Stepped(engine) => self.engine(engine, |host, ambient| {
                host.stepped(ambient);
                Ok(())
            }),
            Happening::Prepared(engine) => self.engine(engine, EngineHost::prepared),
            Happening::ToSupervisor(engine) => {
                let piece = self.host_of(engine).and_then(|host| host.outgoing.arrive());
                self.hear(engine, &piece.unwrap_or_default());
            }
            Happening::Exited(engine, exit) => self.exited(engine, exit),
            Happening::Befalls(mishap) => self.befall(mishap),
            Happening::Calm => self.ambient.faults.calm_down(),
            Happening::Shutdown => {
                self.is_draining = true;
                self.feed_and_tick(Input::Shutdown { drain_ms: DRAIN_MS });
            }
            Happening::Deadline => {}
        }
    }

    pub(crate) fn host_of(&mut self, engine: EngineNumber) -> Option<&mut EngineHost<'a>> {
        self.host.as_mut().filter(|host| host.number == engine)
    }

    /// Lets the engine do something, which may be its last.
    fn engine(
        &mut self,
        engine: EngineNumber,
        act: impl FnOnce(&mut EngineHost<'a>, &mut Ambient) -> Result<(), Ending>,
    ) {
        let host = self.host.as_mut().filter(|host| host.number == engine);
        let Some(host) = host.filter(|host| !host.is_dead) else {
            return;
        };
        match act(host, &mut self.ambient) {
            Ok(()) => {}
            Err(Ending::Exit(exit)) => self.die(exit),
            Err(Ending::Hang) => {
                self.ambient.has_hung = true;
                self.ambient.note(format_args!("{engine:?} hangs"));
                host.hang();
            }
        }
    }

    /// The engine's process ends now; the supervisor will learn of it.
    pub(crate) fn die(&mut self, exit: Exit) {
        let Some(host) = self.host.as_mut().filter(|host| !host.is_dead) else {
            return;
        };
        let Lanes { generator, prepare } = host.lanes();
        let (number, generator, prepare) = (host.number, generator.doing, prepare.doing);
        self.ambient.note(format_args!(
            "{number:?} dies: {exit}, at {generator:?}, {prepare:?}"
        ));
        host.is_dead = true;
        let is_slow = std::mem::take(&mut self.ambient.faults.slow_exit);
        let longest_ms = if is_slow {
            2 * limits::ENGINE_EXIT_MS_MAX
        } else {
            REAP_MS_MAX
        };
        let exited = Happening::Exited(host.number, exit);
        self.ambient.soon(longest_ms, exited);
        let is_mishap = self.ambient.is_tainted || self.ambient.is_stalled;
        self.ambient.mishap_ends += u32::from(is_mishap);
        if self.ambient.is_tainted {
            self.strike_all();
        }
    }

    /// The engine is reaped: what it had written is handed in first.
    fn exited(&mut self, engine: EngineNumber, exit: Exit) {
        let Some(host) = self.host_of(engine) else {
            return;
        };
        let rest = host.outgoing.drain();
        let lanes = host.lanes();
        self.host = None;
        self.last_exit = Some(exit);
        self.hear(engine, &rest);
        self.deaths_ms.push(self.ambient.now_ms());
        let end = Box::new(EngineEnd {
            lanes: Some(lanes),
            ..EngineEnd::from(exit)
        });
        self.feed_and_tick(Input::EngineExited { engine, end });
    }

    /// Bytes of the engine have come.
    fn hear(&mut self, engine: EngineNumber, bytes: &[u8]) {
        if self.is_read_over || bytes.is_empty() {
            return;
        }
        self.events.push(bytes);
        loop {
            match self.events.next_value::<Event>() {
                Ok(Some(event)) => {
                    if let Event::Latched(_) = event {
                        self.hear_of_latch();
                    }
                    self.feed(Input::EngineEvent { engine, event });
                }
                Ok(None) => break,
                Err(error) => {
                    self.is_read_over = true;
                    self.feed(Input::PipeBroken { engine, error });
                    break;
                }
            }
        }
        self.tick_if_due();
    }

    /// A latch counts as a death, if this engine is believed to have got that far.
    fn hear_of_latch(&mut self) {
        self.deaths_ms.push(self.ambient.now_ms());
        if let Some(left) = self.ambient.tainted_latches.checked_sub(1) {
            self.ambient.mishap_ends += 1;
            self.ambient.tainted_latches = left;
            self.strike_all();
        }
    }

    /// What happens now may look like the doing of any request.
    fn strike_all(&mut self) {
        let open = self.clients.iter_mut().filter(|client| client.is_open());
        open.for_each(|client| client.strikes += 1);
    }

    fn befall(&mut self, mishap: Mishap) {
        self.ambient.note(format_args!("mishap: {mishap:?}"));
        if mishap.strikes_at_once() {
            self.ambient.is_tainted |= mishap.implicates_work();
            let is_stall = matches!(mishap, Mishap::StallUp(_) | Mishap::StallDown(_));
            self.ambient.is_stalled |= is_stall;
        }
        let until_ms = |stall_ms: u64| self.ambient.now_ms() + stall_ms;
        match mishap {
            Mishap::Signal(signal) => {
                if let Some(host) = self.host.as_mut().filter(|host| !host.is_dead) {
                    host.outgoing.cut(&mut self.ambient.random);
                    self.ambient.mishap_ends += u32::from(!mishap.implicates_work());
                }
                self.die(Exit::Signal(signal));
            }
            Mishap::Hang => {
                self.ambient.has_hung = true;
                if let Some(host) = &mut self.host {
                    host.hang();
                }
            }
            Mishap::Exit(code) => self.die(Exit::Code(code)),
            Mishap::Lie(lie) => self.ambient.faults.lie = Some(lie),
            Mishap::Step(step) => self.ambient.faults.step = Some(step),
            Mishap::PrivateFault => self.ambient.faults.private = true,
            Mishap::Damage => self.ambient.faults.damage = true,
            Mishap::SlowExit => self.ambient.faults.slow_exit = true,
            Mishap::StallUp(stall_ms) => {
                let until_ms = until_ms(stall_ms);
                self.host
                    .iter_mut()
                    .for_each(|host| host.outgoing.stall(until_ms));
            }
            Mishap::StallDown(stall_ms) => {
                let until_ms = until_ms(stall_ms);
                self.host
                    .iter_mut()
                    .for_each(|host| host.incoming.stall(until_ms));
            }
        }
    }

    pub(crate) fn client(&mut self, id: RequestId) -> Option<&mut Client<'a>> {
        let index = self.by_id.get(&id)?;
        self.clients.get_mut(*index)
    }

    fn submit(&mut self, index: usize) {
        self.ids += 1;
        let id = RequestId(self.ids);
        let now_ms = self.ambient.now_ms();
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        if client.stage != Stage::Away {
            return;
        }
        client.id = Some(id);
        let hash = client.case.fingerprint.hash;
        self.ambient.poisons.sent(id, hash);
        client.asked_ms = now_ms;
        self.by_id.insert(id, index);
        let (request, fingerprint) = (client.case.request.clone(), client.case.fingerprint);
        let habits = client.habits;
        self.feed_and_tick(Input::Submit {
            id,
            request: Box::new(request),
            fingerprint,
        });
        self.ambient
            .agenda
            .after(habits.reads_every_ms, Happening::Reads(index));
        if let Some(patience_ms) = habits.patience_ms {
            self.ambient
                .agenda
                .after(patience_ms, Happening::HangsUp(index));
        }
    }

    fn read(&mut self, index: usize) {
        if let Some(client) = self
            .clients
            .get_mut(index)
            .filter(|client| client.is_open())
        {
            client.read();
            let again_ms = client.habits.reads_every_ms;
            self.ambient.agenda.after(again_ms, Happening::Reads(index));
        }
    }

    fn hang_up(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let was_open = client.is_open();
        if !client.has_ended() {
            client.stage = Stage::Cancelled;
        }
        if let (true, Some(id)) = (was_open, client.id) {
            self.ambient
                .gone_ms
                .insert(id, self.ambient.agenda.now_ms());
            self.feed_and_tick(Input::Cancel { id });
        }
    }

    /// Once all clients have what they came for, the front is asked to end.
    fn end_if_done(&mut self) {
        let now_ms = self.ambient.now_ms();
        let is_over = now_ms >= self.ambient.faults.calm_ms
            && self.clients.iter().all(Client::has_ended)
            && !self.is_draining;
        if !is_over {
            return;
        }
        let is_ready = self.status().is_ready();
        let is_idle = self.host.as_ref().is_some_and(EngineHost::is_idle);
        if is_ready && is_idle {
            self.check_rest();
            self.has_had_calm = true;
            self.is_draining = true;
            self.feed_and_tick(Input::Shutdown { drain_ms: DRAIN_MS });
        } else if self.host.as_ref().is_some_and(|host| host.is_hung) && !self.has_latecomer {
            // Nobody can know of a hang before there is work to do.
            self.has_latecomer = true;
            self.add_latecomer();
        }
    }

    pub(crate) fn status(&self) -> Status {
        self.core.health().status
    }
}

fn engine_config() -> EngineConfig {
    EngineConfig {
        model_path: PathBuf::from("sim"),
        arenas: None,
        context_tokens: None,
        slots: 1,
        pages: None,
        threads: None,
        batch_tokens: 1,
        speculation: relight_protocol::Speculation::Off,
        kv_type: relight_protocol::KvType::F16,
        isa: None,
        chat_template: None,
    }
}
