//! A core with everything around it played by the test.

use std::time::Duration;

use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{ChoiceIndex, Event, Request, RequestId, Resume, Stats};

use super::record::{Entry, Ledger};
use crate::core::{Core, Input};
use crate::fake::FakeBackend;
use crate::language::Language;
use crate::pages::injected;
use crate::prepare::{PrepareContext, run_job};
use crate::scheduler::{Drafting, SchedulerConfig};
use crate::seeded::Seeded;
use crate::sequence::SequenceKey;
use crate::test_vocabulary;

/// Pages of the longest sequence.
pub(super) const CONTEXT_PAGES: u32 = 5;

pub(super) fn context(language: &Language) -> PrepareContext<'_> {
    PrepareContext {
        language,
        context_tokens: CONTEXT_PAGES * u32::try_from(PAGE_TOKENS).unwrap(),
        now_unix_seconds: 0,
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RigSize {
    pub(super) pages: u32,
    pub(super) slots: usize,
    pub(super) batch_rows: usize,
    pub(super) chunk_rows: usize,
    pub(super) drafting: Drafting,
}

pub(super) struct Rig<'a> {
    pub(super) core: Core<'a, FakeBackend>,
    context: PrepareContext<'a>,
    size: RigSize,
    steps: u64,
    stats: Stats,
}

impl<'a> Rig<'a> {
    pub(super) fn new(language: &'a Language, size: RigSize) -> Self {
        let backend = FakeBackend::new(test_vocabulary::SIZE, size.pages as usize);
        Self::over(backend, language, size)
    }

    /// As [`Self::new`], but its pages outlive the core.
    pub(super) fn lasting(language: &'a Language, size: RigSize) -> Self {
        let backend = FakeBackend::lasting(test_vocabulary::SIZE, size.pages as usize);
        Self::over(backend, language, size)
    }

    fn over(backend: FakeBackend, language: &'a Language, size: RigSize) -> Self {
        let config = SchedulerConfig {
            slots: size.slots,
            batch_rows: size.batch_rows,
            chunk_rows: size.chunk_rows,
            drafting: size.drafting,
        };
        Self {
            core: Core::new(backend, config, 1),
            context: context(language),
            size,
            steps: 0,
            stats: Stats::default(),
        }
    }

    pub(super) fn submit(&mut self, ledger: &mut Ledger, id: RequestId, request: Request) {
        ledger.open(id, request.clone());
        self.send(id, request, None);
        self.settle(ledger);
    }

    fn send(&mut self, id: RequestId, request: Request, resume: Option<Resume>) {
        self.core.handle(Input::Submit {
            id,
            request: Box::new(request),
            resume,
        });
        for job in self.core.take_jobs() {
            let result = run_job(&self.context, &job);
            self.core.handle(Input::Prepared {
                id: job.id,
                attempt: job.attempt,
                result,
            });
        }
    }

    pub(super) fn cancel(&mut self, ledger: &mut Ledger, id: RequestId) {
        self.core.handle(Input::Cancel { id });
        self.settle(ledger);
        ledger.forget(id);
    }

    pub(super) fn cancel_one(&mut self, ledger: &mut Ledger, random: &mut Seeded) {
        let open = ledger.open_ids();
        if !open.is_empty() {
            self.cancel(ledger, open[random.below(open.len())]);
        }
    }

    /// Takes the pages of some sequence away, if the one that chance names is running.
    pub(super) fn preempt_one(&mut self, random: &mut Seeded) {
        let key = SequenceKey {
            request: RequestId(1 + random.below(12) as u64),
            choice: ChoiceIndex(u16::try_from(random.below(3)).unwrap()),
        };
        self.core.scheduler_mut().preempt(key);
    }

    pub(super) fn step(&mut self, ledger: &mut Ledger) {
        self.advance();
        self.settle(ledger);
    }

    fn advance(&mut self) {
        self.steps += 1;
        self.core.step(Duration::from_millis(self.steps)).unwrap();
        self.core.audit().unwrap();
    }

    /// Commits what the core said.
    fn settle(&mut self, ledger: &mut Ledger) {
        for event in self.core.take_events() {
            if let Event::Stats(stats) = &event {
                self.stats = *stats;
            }
            ledger.apply(event);
        }
    }

    /// The core dies while the events of a step are on the wire: some of them are lost.
    pub(super) fn kill_during_step(&mut self, ledger: &mut Ledger, random: &mut Seeded) {
        self.advance();
        let events = self.core.take_events();
        let sent = random.below(events.len() + 1);
        for event in events.into_iter().take(sent) {
            ledger.apply(event);
        }
        self.replace(ledger);
    }

    /// The core dies at some write to its memory, or after the step.
    pub(super) fn kill_at_a_write(&mut self, ledger: &mut Ledger, random: &mut Seeded) {
        injected::die_after(Some(random.below(300) as u64));
        let stepped = self.core.step(Duration::from_millis(self.steps));
        injected::die_after(None);
        if stepped.is_ok() {
            self.settle(ledger);
        }
        self.replace(ledger);
    }

    /// A new core on the memory that outlives this one.
    pub(super) fn replace(&mut self, ledger: &mut Ledger) {
        let backend = self.core.backend_mut().survivor();
        *self = Self::over(backend, self.context.language, self.size).resumed(ledger);
        self.core.audit().unwrap();
    }

    /// As after a latch: another core on the same backend, which is given everything again.
    pub(super) fn renewed(mut self, ledger: &mut Ledger) -> Self {
        self.settle(ledger);
        self.core = self.core.renewed().unwrap();
        self.resumed(ledger)
    }

    /// A new core that goes on with everything that is open.
    pub(super) fn replaced(self, ledger: &mut Ledger) -> Self {
        Self::new(self.context.language, self.size).resumed(ledger)
    }

    fn resumed(mut self, ledger: &mut Ledger) -> Self {
        for id in ledger.open_ids() {
            let request = ledger.entry(id).request.clone();
            self.send(id, request, ledger.resume(id));
        }
        self.settle(ledger);
        self
    }

    /// Runs until so many events were committed; what comes after them is lost.
    pub(super) fn run_until_events(&mut self, ledger: &mut Ledger, count: usize) {
        while ledger.event_count() < count {
            self.advance();
            for event in self.core.take_events() {
                if ledger.event_count() < count {
                    ledger.apply(event);
                }
            }
        }
    }

    pub(super) fn run_to_end(&mut self, ledger: &mut Ledger) {
        let mut steps = 0;
        while self.core.has_work() {
            self.step(ledger);
            steps += 1;
            assert!(steps < 100_000, "no progress");
        }
        self.step(ledger);
        assert_eq!(ledger.open_ids(), []);
        let stats = self.stats();
        assert_eq!((stats.pages_used, stats.sequences_running), (0, 0));
    }

    /// The numbers that were reported last.
    pub(super) fn stats(&self) -> Stats {
        self.stats
    }
}

/// The stream of a request that has the engine to itself.
pub(super) fn run_alone(language: &Language, request: &Request) -> Entry {
    let mut ledger = Ledger::default();
    let size = RigSize {
        pages: 3 * CONTEXT_PAGES,
        slots: 3,
        batch_rows: 4096,
        chunk_rows: 4096,
        drafting: Drafting::Never,
    };
    let mut rig = Rig::new(language, size);
    rig.submit(&mut ledger, RequestId(1), request.clone());
    rig.run_to_end(&mut ledger);
    ledger.entry(RequestId(1)).clone()
}
