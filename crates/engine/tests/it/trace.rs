//! Sequences run over a real model, and everything about them that must never change: each
//! row of logits and every byte of key/value state.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};

use relight_engine::arena::ArenaFiles;
use relight_engine::backend::Backend;
use relight_engine::cpu::CpuBackend;
use relight_engine::load::load;
use relight_engine::pages::{PageId, PageStore};
use relight_engine::scheduler::{Drafting, Draw, Scheduler, SchedulerConfig, StepPlan};
use relight_engine::{SequenceKey, SequenceStart};
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{ChoiceIndex, EngineConfig, Isa, RequestId};

use crate::process::memory_file;
use crate::tiny_file::TinyFile;

/// Not a number, in every type of page: whoever reads a place that was not written shows it.
const POISON: u8 = 0xff;

const KILLS_MAX: usize = 8;

/// A prompt, and how many tokens to generate.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) prompt: Vec<u32>,
    pub(crate) generate: usize,
    /// Greedily, or a phrase again and again that some logits interrupt.
    pub(crate) repeats: bool,
}

/// Tokens of the phrase.
const PHRASE: u32 = 5;

impl Work {
    /// The token after `count` others of the answer.
    fn choose(&self, logits: &[f32], count: usize) -> u32 {
        if self.repeats && !hash_logits(logits).is_multiple_of(8) {
            return 50 + u32::try_from(count).unwrap() % PHRASE;
        }
        argmax(logits)
    }
}

/// What must not depend on anything but the work and the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) tokens: Vec<u32>,
    /// Hash of the logits that each token was drawn from.
    pub(crate) logits: Vec<u64>,
    /// Hash of the state of all tokens but the last.
    pub(crate) state: u64,
}

/// How the work is done.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) isa: Option<Isa>,
    pub(crate) threads: u16,
    pub(crate) slots: usize,
    pub(crate) batch_rows: usize,
    pub(crate) chunk_rows: usize,
    pub(crate) drafting: Drafting,
    pub(crate) pages: u32,
    /// Steps between two arrivals.
    pub(crate) arrival_gap: usize,
    /// Every sequence loses its pages after each this many of its tokens.
    pub(crate) preempt_every: Option<usize>,
    /// The engine dies after each this many steps, [`KILLS_MAX`] times at most: work in small
    /// pieces would never end otherwise.
    pub(crate) kill_every: Option<usize>,
    /// The engine after it finds the pages of the one before.
    pub(crate) keeps_pages: bool,
    /// A neighbour of every sequence that is dropped half way.
    pub(crate) abandons: bool,
}

impl Setup {
    /// One sequence, in one piece, on one thread, by the scalar specification.
    pub(crate) fn reference() -> Self {
        Self {
            isa: Some(Isa::Scalar),
            threads: 1,
            slots: 1,
            batch_rows: 4096,
            chunk_rows: 4096,
            drafting: Drafting::Never,
            pages: 24,
            arrival_gap: 0,
            preempt_every: None,
            kill_every: None,
            keeps_pages: false,
            abandons: false,
        }
    }

    /// Many at once on the best tier, undisturbed.
    pub(crate) fn busy() -> Self {
        Self {
            isa: None,
            slots: 64,
            pages: 400,
            ..Self::reference()
        }
    }
}

/// An engine's insides, without text.
struct Bench<'a> {
    file: &'a TinyFile,
    setup: &'a Setup,
    kv: Option<File>,
    savings: Savings,
    backend: CpuBackend,
    scheduler: Scheduler,
    open: BTreeMap<SequenceKey, Open>,
    done: BTreeMap<SequenceKey, Trace>,
}

struct Open {
    work: Work,
    trace: Trace,
    is_abandoned: bool,
}

/// What a run has saved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Savings {
    /// Pages that engines had from those before them.
    pub(crate) adopted: u64,
    /// Drafts that were computed, and those that came true.
    pub(crate) drafted: u64,
    pub(crate) accepted: u64,
}

/// Does all of `works` as `setup` says.
pub(crate) fn run(file: &TinyFile, setup: &Setup, works: &[Work]) -> Vec<Trace> {
    run_and_count(file, setup, works).0
}

/// As [`run`]; also what it has saved.
pub(crate) fn run_and_count(
    file: &TinyFile,
    setup: &Setup,
    works: &[Work],
) -> (Vec<Trace>, Savings) {
    let kv = setup.keeps_pages.then(|| File::from(memory_file("kv")));
    let mut bench = Bench::new(file, setup, kv);
    let mut waiting = works.iter().enumerate();
    let mut steps = 0_usize;
    loop {
        let is_time = setup.arrival_gap == 0 || steps.is_multiple_of(setup.arrival_gap);
        let arrivals = match setup.arrival_gap {
            0 => usize::MAX,
            _ => usize::from(is_time),
        };
        for (index, work) in waiting.by_ref().take(arrivals) {
            bench.add(index, work, false);
            if setup.abandons {
                bench.add(index, work, true);
            }
        }
        if bench.scheduler.has_work() {
            bench.step();
        } else if waiting.len() == 0 {
            break;
        }
        steps += 1;
        assert!(steps < 20_000, "no progress");
        if let Some(every) = setup.kill_every
            && steps.is_multiple_of(every)
            && steps / every <= KILLS_MAX
        {
            bench.kill();
        }
    }
    let keys = (0..works.len()).map(|index| key(index, 0));
    let traces = keys.map(|key| bench.done[&key].clone()).collect();
    (traces, bench.savings)
}

fn key(index: usize, choice: u16) -> SequenceKey {
    SequenceKey {
        request: RequestId(index as u64),
        choice: ChoiceIndex(choice),
    }
}

impl<'a> Bench<'a> {
    fn new(file: &'a TinyFile, setup: &'a Setup, kv: Option<File>) -> Self {
        let config = EngineConfig {
            isa: setup.isa,
            threads: Some(setup.threads),
            pages: Some(setup.pages),
            ..file.config()
        };
        let arenas = ArenaFiles {
            kv: kv.as_ref().map(|file| file.try_clone().unwrap()),
            ..ArenaFiles::default()
        };
        let loaded = load(&config, arenas, &mut |_done, _total| {}).unwrap();
        let mut backend = loaded.backend;
        backend.fill_pages(POISON);
        let sizes = SchedulerConfig {
            slots: setup.slots,
            batch_rows: setup.batch_rows,
            chunk_rows: setup.chunk_rows,
            drafting: setup.drafting,
        };
        let store = PageStore::adopt(backend.page_count(), loaded.card.fingerprint, &backend);
        Self {
            file,
            setup,
            kv,
            savings: Savings {
                adopted: store.adopted_count(),
                ..Savings::default()
            },
            backend,
            scheduler: Scheduler::new(sizes, store),
            open: BTreeMap::new(),
            done: BTreeMap::new(),
        }
    }

    fn add(&mut self, index: usize, work: &Work, is_abandoned: bool) {
        let open = Open {
            work: work.clone(),
            trace: Trace::default(),
            is_abandoned,
        };
        let key = key(index, u16::from(is_abandoned));
        self.scheduler.add(open.start(key));
        self.open.insert(key, open);
    }

    /// Everything but the tokens is lost, and the sealed pages if they are kept.
    fn kill(&mut self) {
        let mut next = Self::new(self.file, self.setup, self.kv.take());
        next.savings = Savings {
            adopted: next.savings.adopted + self.savings.adopted,
            ..self.savings
        };
        next.open = std::mem::take(&mut self.open);
        next.done = std::mem::take(&mut self.done);
        for (key, open) in &next.open {
            next.scheduler.add(open.start(*key));
        }
        *self = next;
    }

    fn step(&mut self) {
        let plan = self.scheduler.plan(&self.backend);
        for copy in plan.copies() {
            self.backend
                .copy_page_prefix(copy.source, copy.target, copy.tokens);
        }
        let mut logits = Vec::new();
        let backend = &mut self.backend;
        plan.with_batch(|batch| backend.forward(batch, &mut logits))
            .unwrap();
        self.scheduler.confirm(&plan, &self.backend);
        let vocabulary = self.backend.vocabulary();
        for draw in plan.draws() {
            self.savings.drafted += draw.rows.len() as u64 - 1;
            let rows = logits.chunks(vocabulary).skip(draw.first);
            for (index, row) in rows.take(draw.rows.len()).enumerate() {
                if index > 0 {
                    self.savings.accepted += 1;
                    self.scheduler.confirm_draft(draw.key, &self.backend);
                }
                let token = self.draw(&plan, draw, row);
                if token.is_none_or(|token| !draw.goes_on(index, token)) {
                    break;
                }
            }
        }
        self.scheduler.audit().unwrap();
    }

    /// Takes the token that a row gives. Returns it if the sequence may go on in this step.
    fn draw(&mut self, plan: &StepPlan, draw: Draw<'_>, logits: &[f32]) -> Option<u32> {
        let (key, place) = (draw.key, draw.rows[0].sequence as usize);
        let table = plan.with_batch(|batch| batch.sequences[place].to_vec());
        let open = self.open.get_mut(&key).unwrap();
        let computed = open.work.prompt.len() + open.trace.tokens.len();
        let token = open.work.choose(logits, open.trace.tokens.len());
        open.trace.tokens.push(token);
        open.trace.logits.push(hash_logits(logits));
        let count = open.trace.tokens.len();
        if open.is_abandoned && count * 2 > open.work.generate {
            self.open.remove(&key);
            self.scheduler.remove(key);
            None
        } else if count == open.work.generate {
            let state = hash_state(&mut self.backend, &table, computed);
            let mut trace = self.open.remove(&key).unwrap().trace;
            trace.state = state;
            self.done.insert(key, trace);
            self.scheduler.remove(key);
            None
        } else {
            self.scheduler.push(key, token);
            let every = self.setup.preempt_every;
            let is_preempted = every.is_some_and(|every| count.is_multiple_of(every));
            if is_preempted {
                self.scheduler.preempt(key);
            }
            (!is_preempted).then_some(token)
        }
    }
}

impl Open {
    fn start(&self, key: SequenceKey) -> SequenceStart {
        let prompt = &self.work.prompt;
        SequenceStart {
            key,
            tokens: prompt.iter().chain(&self.trace.tokens).copied().collect(),
            prompt_count: prompt.len(),
            tokens_max: prompt.len() + self.work.generate,
        }
    }
}

fn argmax(logits: &[f32]) -> u32 {
    let best = (0..).zip(logits);
    let best = best.max_by(|left, right| left.1.total_cmp(right.1));
    best.unwrap().0
}

fn hash_logits(logits: &[f32]) -> u64 {
    assert!(logits.iter().all(|logit| logit.is_finite()));
    let mut hasher = DefaultHasher::new();
    for logit in logits {
        logit.to_bits().hash(&mut hasher);
    }
    hasher.finish()
}

fn hash_state(backend: &mut CpuBackend, table: &[u32], tokens: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (index, page) in table.iter().enumerate() {
        let count = tokens.saturating_sub(index * PAGE_TOKENS).min(PAGE_TOKENS);
        backend.page_prefix(PageId(*page), count).hash(&mut hasher);
    }
    hasher.finish()
}
