//! The engine's loop with its two threads: the core is given what has come, computes a step
//! that takes a while, and says what came of it; beside it, requests are prepared.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use relight_engine::arena::Recorder;
use relight_engine::core::{Core, Input, PrepareJob};
use relight_engine::language::Language;
use relight_engine::prepare::run_job;
use relight_engine::{LaneUse, SequenceKey};
use relight_protocol::recorder::{Activity, Lane};
use relight_protocol::{ChoiceIndex, Event, Fault, Phase, RequestId};
use relight_supervisor::Lanes;
use relight_supervisor::core::{EngineNumber, Exit};

use crate::ambient::{Ambient, Happening};
use crate::backend::{Lost, SimBackend, StepFault};
use crate::case::context;
use crate::poison::Effect;
use crate::quiet::quietly;

const SIGSEGV: i32 = 11;
const PREPARE_MS_MAX: u64 = 8;
/// What the watchdog is told about private work.
const PRIVATE_MS: u64 = 100;
/// One step in so many is slow, and how slow: less than any time-out.
const SLOW_STEPS: u64 = 200;
const SLOW_STEP_MS: u64 = 2_000;

/// A step that begins so long after a client hung up computes nothing for it.
const CANCEL_MS_MAX: u64 = 5;
/// Before one step in so many, a sequence loses its pages.
const PREEMPTED_STEPS: u64 = 20;

/// How an engine stops doing anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exit(Exit),
    Hang,
}

/// What the generator is told.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Input(Input<'a>),
    End,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Generator<'a> {
    engine: EngineNumber,
    language: &'a Language,
    recorder: Arc<Recorder>,
    /// There but for the moment in which it is replaced.
    core: Option<Core<'a, SimBackend>>,
    inbox: VecDeque<Message<'a>>,
    jobs: VecDeque<PrepareJob>,
    is_preparing: bool,
    /// A turn is planned, or a step is being computed.
    is_busy: bool,
    begun_ms: u64,
    /// What the step that is being computed will have to say.
    unsaid: Vec<Event>,
    /// What the generator's lane says while a step is being computed.
    shown: Option<Activity>,
    /// Tokens of the first choice of each request, those of earlier engines included.
    tokens: BTreeMap<RequestId, u32>,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(
        engine: EngineNumber,
        language: &'a Language,
        recorder: Arc<Recorder>,
        core: Core<'a, SimBackend>,
    ) -> Self {
        Self {
            engine,
            language,
            recorder,
            core: Some(core),
            inbox: VecDeque::new(),
            jobs: VecDeque::new(),
            is_preparing: false,
            is_busy: false,
            begun_ms: 0,
            unsaid: Vec::new(),
            shown: None,
            tokens: BTreeMap::new(),
        }
    }

    /// What the recorder says at this moment.
    pub(crate) fn lanes(&self) -> Lanes {
        let generator = self.shown.clone();
        Lanes {
            generator: generator.unwrap_or_else(|| self.recorder.activity(Lane::Generator)),
            prepare: self.recorder.activity(Lane::Prepare),
        }
    }

    pub(crate) fn push(&mut self, message: Message<'a>, ambient: &mut Ambient) {
        self.inbox.push_back(message);
        self.wake(ambient);
    }

    fn wake(&mut self, ambient: &mut Ambient) {
        if !self.is_busy {
            self.is_busy = true;
            ambient.agenda.after(0, Happening::Turns(self.engine));
        }
    }

    /// What has come is taken in, and a step begun if there is work.
    pub(crate) fn turns(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        let recorder = Arc::clone(&self.recorder);
        let lane = LaneUse::new(recorder, Lane::Generator);
        self.take_in()?;
        self.begun_ms = ambient.now_ms();
        let rows = self.compute(ambient);
        drop(lane);
        let rows = rows?;
        self.note_tokens(ambient)?;
        self.prepare_next(ambient)?;
        let mut longest_ms = 1 + rows / 8;
        if rows > 0 && ambient.random.one_in(SLOW_STEPS) {
            longest_ms = SLOW_STEP_MS;
        }
        ambient.soon(longest_ms, Happening::Stepped(self.engine));
        Ok(())
    }

    fn take_in(&mut self) -> Result<(), Ending> {
        let Some(core) = self.core.as_mut() else {
            return Ok(());
        };
        while let Some(message) = self.inbox.pop_front() {
            match message {
                Message::Input(input) => {
                    if let Input::Submit { id, resume, .. } = &input {
                        let first = resume.iter().find_map(|resume| resume.choices.first());
                        let tokens = first.map_or(0, |choice| choice.tokens.len());
                        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
                        self.tokens.insert(*id, tokens);
                    }
                    quietly(|| core.handle(input));
                }
                Message::End => return Err(Ending::Exit(Exit::Code(0))),
            }
        }
        self.jobs.extend(core.take_jobs());
        Ok(())
    }

    /// One step, with as many new cores as it takes. Returns its rows.
    fn compute(&mut self, ambient: &mut Ambient) -> Result<u64, Ending> {
        let Some(mut core) = self.core.take() else {
            return Ok(0);
        };
        let backend = core.backend_mut();
        backend.rows = 0;
        backend.poisons.clear();
        for (id, tokens) in &self.tokens {
            if let Some(Effect::Step(fault)) = ambient.poisons.effect(*id, *tokens) {
                backend.poisons.push((*id, fault));
            }
        }
        if core.has_work() {
            core.backend_mut().fault = ambient.faults.take_step();
            if ambient.random.one_in(PREEMPTED_STEPS) {
                let index = ambient.random.index(self.tokens.len());
                if let Some((request, _tokens)) = self.tokens.iter().nth(index) {
                    core.scheduler_mut().preempt(SequenceKey {
                        request: *request,
                        choice: ChoiceIndex(0),
                    });
                }
            }
        }
        let now = Duration::from_millis(ambient.now_ms());
        while let Err(latched) = quietly(|| core.step(now)) {
            ambient.note(format_args!("{:?} fails: {}", self.engine, latched.cause));
            blame(core.backend_mut(), ambient);
            if let Some(Lost { fault, activity }) = core.backend_mut().lost.take() {
                self.shown = Some(activity);
                return Err(match fault {
                    StepFault::Hang => Ending::Hang,
                    _ => Ending::Exit(Exit::Signal(SIGSEGV)),
                });
            }
            self.unsaid.extend(core.take_events());
            core = quietly(|| core.renewed()).map_err(|_held| Ending::Exit(Exit::Code(1)))?;
            self.tokens.clear();
            self.unsaid.push(Event::Latched(latched));
        }
        self.unsaid.extend(core.take_events());
        let rows = core.backend_mut().rows as u64;
        if rows > 0 {
            self.shown = Some(core.backend_mut().seen.clone());
        }
        self.core = Some(core);
        Ok(rows)
    }

    /// Counts the tokens that were drawn. A poison may work in its own private work: then
    /// nothing of this step is said.
    fn note_tokens(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        for event in &self.unsaid {
            let Event::Delta(delta) = event else {
                continue;
            };
            if let Some(gone_ms) = ambient.gone_ms.get(&delta.id)
                && self.begun_ms > gone_ms + CANCEL_MS_MAX
                && !ambient.is_stalled
            {
                ambient.breach(format_args!("{} goes on without its client", delta.id));
            }
            if delta.choice.0 > 0 {
                continue;
            }
            let tokens = self.tokens.entry(delta.id).or_default();
            let effect = ambient.poisons.effect(delta.id, *tokens);
            *tokens += 1;
            if let Some(effect @ (Effect::Crash(phase) | Effect::Hang(phase))) = effect
                && phase != Phase::Prepare
            {
                self.shown = None;
                if let Some(lane) = self.recorder.lane(Lane::Generator) {
                    lane.private(delta.id, phase, PRIVATE_MS);
                }
                return Err(ending_of(effect, delta.id, ambient));
            }
        }
        Ok(())
    }

    /// The step is done: what it has to say.
    pub(crate) fn stepped(&mut self, ambient: &mut Ambient) -> Vec<Event> {
        self.is_busy = false;
        let took = Duration::from_millis(ambient.now_ms().saturating_sub(self.begun_ms));
        if let Some(core) = self.core.as_mut() {
            core.note_duration(took);
        }
        self.shown = None;
        if self.core.as_ref().is_some_and(Core::has_work) || !self.inbox.is_empty() {
            self.wake(ambient);
        }
        std::mem::take(&mut self.unsaid)
    }

    /// The preparation thread has done its oldest job.
    pub(crate) fn prepared(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        self.is_preparing = false;
        if let Some(job) = self.jobs.pop_front()
            && !job.is_stale.load(Ordering::Relaxed)
        {
            let lane = LaneUse::new(Arc::clone(&self.recorder), Lane::Prepare);
            let mut result = quietly(|| run_job(&context(self.language), &job));
            drop(lane);
            if ambient.faults.takes_private() {
                let phase = Phase::Prepare;
                result = Err(Fault::Internal { phase }.into());
            }
            let input = Input::Prepared {
                id: job.id,
                attempt: job.attempt,
                result,
            };
            self.push(Message::Input(input), ambient);
        }
        if let Some(lane) = self.recorder.lane(Lane::Prepare) {
            lane.idle();
        }
        self.prepare_next(ambient)
    }

    fn prepare_next(&mut self, ambient: &mut Ambient) -> Result<(), Ending> {
        let Some(job) = self.jobs.front().filter(|_job| !self.is_preparing) else {
            return Ok(());
        };
        self.is_preparing = true;
        if let Some(lane) = self.recorder.lane(Lane::Prepare) {
            lane.private(job.id, Phase::Prepare, PRIVATE_MS);
        }
        let effect = ambient.poisons.effect(job.id, 0);
        if let Some(effect @ (Effect::Crash(Phase::Prepare) | Effect::Hang(Phase::Prepare))) =
            effect
        {
            return Err(ending_of(effect, job.id, ambient));
        }
        ambient.soon(PREPARE_MS_MAX, Happening::Prepared(self.engine));
        Ok(())
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
        !has_work && self.inbox.is_empty() && self.jobs.is_empty() && !self.is_busy
    }
}

/// Notes whose doing a latch is: a poison's, or the simulation's own.
fn blame(backend: &SimBackend, ambient: &mut Ambient) {
    match backend.poisoned_by {
        Some(id) => ambient.poison_worked(id),
        None if backend.was_told_to => ambient.tainted_latches += 1,
        None => ambient.breach(format_args!("an engine latches of its own accord")),
    }
}

fn ending_of(effect: Effect, id: RequestId, ambient: &mut Ambient) -> Ending {
    ambient.poison_worked(id);
    match effect {
        Effect::Hang(_) => Ending::Hang,
        Effect::Crash(_) | Effect::Step(_) => Ending::Exit(Exit::Signal(SIGSEGV)),
    }
}
