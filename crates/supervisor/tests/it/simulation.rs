//! The core on virtual time against an engine that dies, lies, repeats itself and dawdles,
//! all from a seed.
//!
//! Safety: whatever a client receives is a prefix of the foretold answer, each byte once, and
//! one last event. Liveness: once the faults stop, every request ends and nothing is left.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use relight_protocol::recorder::Doing;
use relight_protocol::{
    Command, EngineConfig, Event, Fault, FrameError, Request, RequestId, TokenId,
};
use relight_supervisor::blame::Fingerprint;
use relight_supervisor::core::{Action, Core, EngineEnd, EngineNumber, Exit, Input};
use relight_supervisor::{Bounds, Lanes, Snapshot, StreamEvent};

use crate::scripted_engine::{ScriptedEngine, count, foretell, mix, prompt_tokens, request};

const SEEDS: u64 = 300;
const CLIENTS: u64 = 24;
/// How long faults go on after the last client came.
const FAULTS_MS: u64 = 20_000;
/// Virtual time after which everything must have ended: the longest
/// waits in the core are the load's silence and the probes.
const QUIET_MS: u64 = 600_000;

struct Client {
    request: Request,
    texts: Vec<String>,
    finished_choices: u16,
    is_accepted: bool,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq)]
enum End {
    Complete,
    Failed(Fault),
    Refused(Fault),
    Cancelled,
}

struct Engine {
    number: EngineNumber,
    script: ScriptedEngine,
    /// With the time at which they arrive.
    down: VecDeque<(u64, Command)>,
    up: VecDeque<(u64, Event)>,
    is_dead: bool,
}

struct Simulation {
    random: u64,
    now_ms: u64,
    core: Core,
    engine: Option<Engine>,
    exits: Vec<(u64, EngineNumber, EngineEnd)>,
    clients: BTreeMap<RequestId, Client>,
    faults_left: u32,
    /// One event in this many is tampered with.
    fault_rarity: u64,
    trace: DefaultHasher,
}

impl Simulation {
    fn new(seed: u64, faults: u32, fault_rarity: u64) -> Self {
        let config = EngineConfig {
            model_path: "scripted.gguf".into(),
            arenas: None,
            context_tokens: None,
            slots: 8,
            pages: None,
            threads: None,
            batch_tokens: 512,
            speculation: relight_protocol::Speculation::Off,
            kv_type: relight_protocol::KvType::F16,
            isa: None,
            chat_template: None,
        };
        let bounds = Bounds {
            engine_requests_max: 6,
            ..Bounds::default()
        };
        Self {
            random: mix(seed),
            now_ms: 0,
            core: Core::new(config, bounds),
            engine: None,
            exits: Vec::new(),
            clients: BTreeMap::new(),
            faults_left: faults,
            fault_rarity,
            trace: DefaultHasher::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = mix(self.random);
        self.random % bound
    }

    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now_ms, input);
            let mut actions = Vec::new();
            self.core.take_actions(&mut actions);
            for action in actions {
                format!("{} {action:?}", self.now_ms).hash(&mut self.trace);
                inputs.extend(self.act(action));
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Spawn { engine } => return Some(self.spawn(engine)),
            Action::Send { engine, command } => {
                let due_ms = self.now_ms + self.below(5);
                let target = self.engine.as_mut().filter(|it| it.number == engine);
                if let Some(target) = target {
                    let last_ms = target.down.back().map_or(0, |(due_ms, _)| *due_ms);
                    target.down.push_back((due_ms.max(last_ms), command));
                }
            }
            Action::Kill { engine } => self.die(engine, Exit::Signal(9)),
            Action::Admit { .. } => {}
            Action::Refuse { id, failure } => self.end(id, End::Refused(failure.fault)),
            Action::Deliver { id, event } => self.deliver(id, event),
            Action::Stop { .. } => panic!("nobody asked for a shutdown"),
        }
        None
    }

    fn spawn(&mut self, engine: EngineNumber) -> Input {
        if self.faults_left > 0 && self.below(20) == 0 {
            self.faults_left -= 1;
            let message = "no more processes".into();
            return Input::SpawnFailed { engine, message };
        }
        self.engine = Some(Engine {
            number: engine,
            script: ScriptedEngine::start(),
            down: VecDeque::new(),
            up: VecDeque::new(),
            is_dead: false,
        });
        Input::EngineSpawned { engine, pid: 1 }
    }

    /// The engine does no more work; what it said before may still arrive, and its end is
    /// seen a little later, or too late.
    fn die(&mut self, number: EngineNumber, exit: Exit) {
        let reap_ms = if self.below(50) == 0 {
            10_000
        } else {
            self.below(20)
        };
        let Some(engine) = self.engine.as_mut().filter(|it| it.number == number) else {
            return;
        };
        if !engine.is_dead {
            engine.is_dead = true;
            let participants = engine.script.participants();
            let mut lanes = Lanes::default();
            lanes.generator.doing = Doing::Shared { participants };
            let end = EngineEnd {
                lanes: Some(lanes),
                ..exit.into()
            };
            self.exits.push((self.now_ms + reap_ms, number, end));
        }
    }

    fn deliver(&mut self, id: RequestId, event: StreamEvent) {
        let client = self.clients.get_mut(&id).unwrap();
        assert_eq!(client.end, None, "{id} gets {event:?} after its end");
        let mut append = |choice: u16, offset: u32, text: &str| {
            let target = &mut client.texts[usize::from(choice)];
            assert_eq!(offset as usize, target.len(), "{id}");
            target.push_str(text);
        };
        match event {
            StreamEvent::Accepted { prompt_tokens, .. } => {
                assert!(!client.is_accepted, "{id} accepted twice");
                assert_eq!(
                    prompt_tokens,
                    count(self::prompt_tokens(&client.request).len())
                );
                client.is_accepted = true;
            }
            StreamEvent::Delta(delta) => append(delta.choice.0, delta.text_offset, &delta.text),
            StreamEvent::ChoiceFinished(end) => {
                append(end.choice.0, end.text_offset, &end.text);
                let answer = foretell(&client.request, end.choice.0);
                assert_eq!(end.reason, answer.reason);
                client.finished_choices += 1;
            }
            StreamEvent::Finished(usage) => {
                let answers = (0..client.request.choices).map(|c| foretell(&client.request, c));
                let tokens: usize = answers.map(|answer| answer.tokens.len()).sum();
                assert_eq!(usage.completion_tokens, count(tokens));
                self.end(id, End::Complete);
            }
            StreamEvent::Failed(failure) => self.end(id, End::Failed(failure.fault)),
        }
    }

    fn end(&mut self, id: RequestId, end: End) {
        let client = self.clients.get_mut(&id).unwrap();
        assert_eq!(client.end, None, "{id} ends twice");
        client.end = Some(end);
    }

    fn clients_act(&mut self) {
        if self.below(12) == 0 {
            let choices = 1 + u16::try_from(self.below(3)).unwrap();
            let tokens = 1 + u32::try_from(self.below(40)).unwrap();
            let invalid = if self.below(12) == 0 { "[invalid]" } else { "" };
            let number = self.clients.len();
            let mut request = request(&format!("{number}{invalid}"), choices, tokens);
            request.sampling.seed = self.below(1000);
            self.submit(request);
        }
        if self.below(60) == 0 {
            let open = |(id, client): (&RequestId, &Client)| client.end.is_none().then_some(*id);
            let open: Vec<RequestId> = self.clients.iter().filter_map(open).collect();
            if !open.is_empty() {
                let pick = self.below(open.len() as u64);
                let id = open[usize::try_from(pick).unwrap()];
                self.end(id, End::Cancelled);
                self.input(Input::Cancel { id });
            }
        }
    }

    fn submit(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.clients.len() as u64 + 1);
        let client = Client {
            request: request.clone(),
            texts: vec![String::new(); usize::from(request.choices)],
            finished_choices: 0,
            is_accepted: false,
            end: None,
        };
        self.clients.insert(id, client);
        let fingerprint = Fingerprint::of(&request).unwrap();
        self.input(Input::Submit {
            id,
            request: Box::new(request),
            fingerprint,
        });
        id
    }

    fn engine_acts(&mut self) {
        let works = self.below(2) == 0;
        let now_ms = self.now_ms;
        let Some(engine) = self.engine.as_mut().filter(|engine| !engine.is_dead) else {
            return;
        };
        while engine
            .down
            .front()
            .is_some_and(|(due_ms, _)| *due_ms <= now_ms)
        {
            let (_, command) = engine.down.pop_front().unwrap();
            engine.script.command(command);
        }
        if works {
            engine.script.step();
        }
        let said: Vec<Event> = engine.script.said.drain(..).collect();
        for event in said {
            for event in self.tamper(event) {
                let due_ms = self.now_ms + self.below(4);
                let Some(engine) = &mut self.engine else {
                    return;
                };
                let last_ms = engine.up.back().map_or(0, |(due_ms, _)| *due_ms);
                engine.up.push_back((due_ms.max(last_ms), event));
            }
        }
    }

    /// What arrives of an event.
    fn tamper(&mut self, event: Event) -> Vec<Event> {
        let rarity = self.fault_rarity;
        if self.faults_left == 0 || self.below(rarity) != 0 {
            return vec![event];
        }
        self.faults_left -= 1;
        let engine = self.engine.as_ref().unwrap().number;
        match (self.below(9), event) {
            (0, event) => {
                self.die(engine, Exit::Signal(9));
                vec![event]
            }
            (1, _) => {
                self.die(engine, Exit::Signal(11));
                Vec::new()
            }
            (2, _) => {
                // The rest of what it said is lost too.
                self.engine.as_mut().unwrap().up.clear();
                self.die(engine, Exit::Signal(9));
                Vec::new()
            }
            (3, Event::Delta(mut delta)) => {
                delta.token = TokenId(delta.token.0 + 1);
                let truth = delta.token_index;
                delta.token_index += 1;
                assert_ne!(truth, delta.token_index);
                vec![Event::Delta(delta)]
            }
            (4, Event::Delta(mut delta)) => {
                delta.id = RequestId(1 << 50);
                vec![Event::Delta(delta)]
            }
            (5, Event::Delta(mut delta)) => {
                delta.text_offset += 1;
                vec![Event::Delta(delta)]
            }
            (6, Event::Delta(_) | Event::ChoiceFinished(_) | Event::Accepted(_)) => Vec::new(),
            (7, event) => {
                self.input(Input::PipeBroken {
                    engine,
                    error: FrameError::Malformed { found: 1 },
                });
                vec![event]
            }
            (_, event @ (Event::Hello { .. } | Event::Ready(_))) => vec![event],
            (_, event) => vec![event.clone(), event],
        }
    }

    fn events_arrive(&mut self) {
        loop {
            let now_ms = self.now_ms;
            let Some(engine) = &mut self.engine else {
                return;
            };
            let number = engine.number;
            if engine.up.front().is_none_or(|(due_ms, _)| *due_ms > now_ms) {
                return;
            }
            let (_, event) = engine.up.pop_front().unwrap();
            self.input(Input::EngineEvent {
                engine: number,
                event,
            });
        }
    }

    fn engines_are_reaped(&mut self) {
        let now_ms = self.now_ms;
        let due = self.exits.extract_if(.., |(due_ms, ..)| *due_ms <= now_ms);
        for (_, engine, end) in due.collect::<Vec<_>>() {
            // A pipe is read to its end before its process counts as gone.
            let is_current = |it: &&mut Engine| it.number == engine;
            if let Some(current) = self.engine.as_mut().filter(is_current) {
                for (due_ms, _) in &mut current.up {
                    *due_ms = now_ms;
                }
                self.events_arrive();
            }
            let end = Box::new(end);
            self.input(Input::EngineExited { engine, end });
        }
    }

    fn time_passes(&mut self) {
        self.now_ms += 1 + self.below(4);
        self.engine_acts();
        self.events_arrive();
        self.engines_are_reaped();
        if self.now_ms >= self.core.next_deadline_ms() || self.below(20) == 0 {
            self.input(Input::Tick);
        }
    }

    /// Time passes until `is_done`; without faults that may not take for ever.
    fn passes_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        let since_ms = self.now_ms;
        while !is_done(self) {
            self.time_passes();
            if self.now_ms - since_ms > FAULTS_MS {
                self.faults_left = 0;
            }
            assert!(self.now_ms - since_ms < QUIET_MS, "it never comes");
        }
    }

    /// Runs to the end of all requests, and of one more after the faults.
    fn run(mut self) -> (u64, Snapshot, BTreeMap<RequestId, Client>) {
        self.input(Input::Start { unix_ms: 0 });
        while (self.clients.len() as u64) < CLIENTS {
            self.clients_act();
            self.time_passes();
        }
        self.passes_until(|it| it.clients.values().all(|client| client.end.is_some()));
        assert!(self.core.ledger().is_empty());
        assert_eq!(self.core.ledger().bytes(), 0);
        self.faults_left = 0;
        self.passes_until(|it| it.core.health().status.is_ready());
        let id = self.submit(request("coda", 1, 10));
        self.passes_until(|it| it.clients[&id].end.is_some());
        assert_eq!(self.clients[&id].end, Some(End::Complete));
        (self.trace.finish(), self.core.snapshot(), self.clients)
    }
}

/// What many runs came to.
#[derive(Debug, Default)]
struct Total {
    unavailable: usize,
    complete: usize,
    restarts: u64,
    resumed: u64,
    violations: u64,
    duplicates: u64,
}

impl Total {
    /// Runs a seed twice and checks everything that holds for any run.
    fn add(&mut self, seed: u64, faults: u32, fault_rarity: u64) {
        let (trace, snapshot, clients) = Simulation::new(seed, faults, fault_rarity).run();
        let (again, ..) = Simulation::new(seed, faults, fault_rarity).run();
        assert_eq!(trace, again, "seed {seed} gives two traces");
        let (mut quarantined, mut cancelled) = (0, 0);
        for (id, client) in &clients {
            for (choice, text) in (0..).zip(&client.texts) {
                let truth = foretell(&client.request, choice).text;
                assert!(truth.starts_with(text), "seed {seed} {id}");
                if client.end == Some(End::Complete) {
                    assert_eq!(*text, truth, "seed {seed} {id}");
                }
            }
            match client.end.as_ref().unwrap() {
                End::Complete => {
                    assert_eq!(client.finished_choices, client.request.choices);
                    self.complete += 1;
                }
                End::Cancelled => cancelled += 1,
                End::Failed(Fault::InvalidRequest { .. }) => {}
                End::Failed(Fault::EngineCrashed) => quarantined += 1,
                End::Failed(Fault::EngineUnavailable) | End::Refused(Fault::EngineUnavailable) => {
                    self.unavailable += 1;
                }
                other => panic!("seed {seed} {id} ends in {other:?}"),
            }
        }
        // Also those whose clients had hung up before the verdict.
        let verdicts = quarantined..=quarantined + cancelled;
        assert!(
            verdicts.contains(&snapshot.quarantines_total),
            "seed {seed}"
        );
        assert_eq!(snapshot.invariant_breaches_total, 0);
        self.restarts += snapshot.restarts.values().sum::<u64>();
        self.resumed += snapshot.requests_resumed_total;
        self.violations += snapshot.protocol_violations_total;
        self.duplicates += snapshot.duplicate_events_total;
    }
}

#[test]
fn within_the_restart_budget_no_request_is_lost_repeated_or_changed() {
    let mut total = Total::default();
    for seed in 0..SEEDS {
        total.add(seed, 6, 40);
        assert_eq!(total.unavailable, 0, "seed {seed}");
    }
    // Faults did happen, of each kind, and in the middle of work.
    assert!(total.restarts > SEEDS, "{total:?}");
    assert!(total.resumed > total.restarts, "{total:?}");
    assert!(total.violations > SEEDS / 4, "{total:?}");
    assert!(total.duplicates > SEEDS / 4, "{total:?}");
}

#[test]
fn past_the_restart_budget_requests_fail_honestly_and_service_returns() {
    let mut total = Total::default();
    for seed in 0..SEEDS {
        total.add(seed, u32::MAX, 12);
    }
    assert!(total.unavailable as u64 > SEEDS, "{total:?}");
    assert!(total.complete as u64 > SEEDS, "{total:?}");
}
