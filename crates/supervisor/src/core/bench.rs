//! What the tests of the core share: a core, its clock, and short words for engines' events.

use relight_protocol::recorder::{Activity, Doing, Participant};
use relight_protocol::{
    Accepted, ChoiceFinished, ChoiceIndex, Command, Delta, EngineConfig, Event, Fault,
    FinishReason, Finished, LatchCause, Latched, ModelCard, PROTOCOL_VERSION, Phase, Promise,
    Prompt, Rejected, Request, RequestId, Resume, Sampling, Started, StopRules, TokenId, Usage,
};

use super::{Action, Core, EngineEnd, EngineNumber, Exit, Input};
use crate::blame::Fingerprint;
use crate::config::Bounds;
use crate::health::Status;
use crate::lanes::Lanes;
use crate::stream::{RequestFailure, StreamEvent};

pub(super) struct Bench {
    pub(super) core: Core,
    pub(super) now_ms: u64,
    /// The engine spawned last.
    pub(super) engine: EngineNumber,
}

pub(super) fn request(text: &str) -> Request {
    Request {
        prompt: Prompt::Text(text.into()),
        choices: 1,
        sampling: Sampling::default(),
        stop: StopRules::default(),
        logprobs: None,
        echo: false,
    }
}

pub(super) fn card() -> ModelCard {
    ModelCard {
        name: "m".into(),
        architecture: "a".into(),
        quantization: "q".into(),
        fingerprint: 1,
        parameters: 1,
        vocabulary: 10,
        context_tokens: 100,
        context_tokens_trained: 100,
        slots: 4,
        pages: 4,
        page_bytes: 4,
        weights_bytes: 4,
        threads: 1,
        kernels: "k".into(),
        speculation: relight_protocol::Speculation::Off,
        kv_type: relight_protocol::KvType::F16,
        has_chat_template: false,
        load_ms: 1,
    }
}

impl Bench {
    /// A core whose engine is ready.
    pub(super) fn serving() -> Self {
        Self::serving_within(Bounds::default())
    }

    pub(super) fn serving_within(bounds: Bounds) -> Self {
        let mut bench = Self::started(bounds);
        bench.load();
        bench
    }

    /// A core whose first engine has been spawned.
    pub(super) fn started(bounds: Bounds) -> Self {
        let config = EngineConfig {
            model_path: "m.gguf".into(),
            arenas: None,
            context_tokens: None,
            slots: 4,
            pages: None,
            threads: None,
            batch_tokens: 64,
            speculation: relight_protocol::Speculation::Off,
            kv_type: relight_protocol::KvType::F16,
            isa: None,
            chat_template: None,
        };
        let mut bench = Self {
            core: Core::new(config, bounds),
            now_ms: 0,
            engine: EngineNumber(0),
        };
        assert_eq!(
            bench.input(Input::Start { unix_ms: 0 }),
            [Action::Spawn {
                engine: EngineNumber(1)
            }]
        );
        bench.spawned();
        bench
    }

    pub(super) fn input(&mut self, input: Input) -> Vec<Action> {
        self.core.handle(self.now_ms, input);
        let mut actions = Vec::new();
        self.core.take_actions(&mut actions);
        for action in &actions {
            if let Action::Spawn { engine } = action {
                self.engine = *engine;
            }
        }
        actions
    }

    pub(super) fn spawned(&mut self) {
        let engine = self.engine;
        let pid = 1000 + u32::try_from(engine.0).unwrap();
        assert_eq!(self.input(Input::EngineSpawned { engine, pid }), []);
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<Action> {
        let engine = self.engine;
        self.input(Input::EngineEvent { engine, event })
    }

    pub(super) fn hello(&mut self) -> Vec<Action> {
        self.event(Event::Hello {
            protocol_version: PROTOCOL_VERSION,
            promise: Promise::Exact,
        })
    }

    /// From spawned to ready.
    pub(super) fn load(&mut self) -> Vec<Action> {
        let actions = self.hello();
        assert!(matches!(
            actions.as_slice(),
            [Action::Send {
                command: Command::Load(_),
                ..
            }]
        ));
        self.event(Event::Ready(Box::new(card())))
    }

    pub(super) fn wait(&mut self, ms: u64) -> Vec<Action> {
        self.now_ms += ms;
        self.input(Input::Tick)
    }

    pub(super) fn exit(&mut self, exit: Exit) -> Vec<Action> {
        self.exit_with(exit.into())
    }

    pub(super) fn exit_with(&mut self, end: EngineEnd) -> Vec<Action> {
        let engine = self.engine;
        let end = Box::new(end);
        self.input(Input::EngineExited { engine, end })
    }

    /// The engine ends by a signal of its own making, amid a step of these.
    pub(super) fn die_in_step(&mut self, participants: &[u64]) -> Vec<Action> {
        self.exit_with(EngineEnd {
            lanes: Some(step(participants)),
            ..Exit::Signal(11).into()
        })
    }

    /// The same, with something else in the recorder.
    pub(super) fn die_at(&mut self, lanes: Lanes) -> Vec<Action> {
        self.exit_with(EngineEnd {
            lanes: Some(lanes),
            ..Exit::Signal(11).into()
        })
    }

    pub(super) fn latch(&mut self, cause: LatchCause, participants: &[u64]) -> Vec<Action> {
        self.event(Event::Latched(Latched {
            cause,
            participants: participants.iter().map(|id| participant(*id)).collect(),
            report: Some("at step".into()),
        }))
    }

    pub(super) fn look(&mut self, lanes: &Lanes) -> Vec<Action> {
        let engine = self.engine;
        let lanes = Box::new(lanes.clone());
        self.input(Input::Looked { engine, lanes })
    }

    pub(super) fn started_with(&mut self, id: u64, cached_tokens: u32) -> Vec<Action> {
        let id = RequestId(id);
        self.event(Event::Started(Started { id, cached_tokens }))
    }

    /// Accepted, with these many tokens committed.
    pub(super) fn run(&mut self, id: u64, tokens: u32) {
        self.accepted(id);
        for index in 0..tokens {
            self.token(id, index);
        }
    }

    /// From a death on: waits for the next engine and has it load.
    pub(super) fn restart(&mut self) -> Vec<Action> {
        let dead = self.engine;
        self.wait(relight_protocol::limits::RESTART_BACKOFF_MS_MAX);
        assert_ne!(self.engine, dead, "another engine is spawned");
        self.spawned();
        self.load()
    }

    /// Engines die until the budget is exhausted. The actions of the last death.
    pub(super) fn exhaust(&mut self) -> Vec<Action> {
        for _ in 0..relight_protocol::limits::RESTARTS_MAX {
            self.exit(Exit::Signal(9));
            let dead = self.engine;
            while self.engine == dead {
                self.wait(self.core.next_deadline_ms() - self.now_ms);
            }
            self.spawned();
            self.load();
        }
        self.exit(Exit::Signal(9))
    }

    pub(super) fn submit(&mut self, id: u64) -> Vec<Action> {
        self.submit_request(id, request(&id.to_string()))
    }

    pub(super) fn submit_request(&mut self, id: u64, request: Request) -> Vec<Action> {
        let fingerprint = Fingerprint::of(&request).unwrap();
        self.input(Input::Submit {
            id: RequestId(id),
            request: Box::new(request),
            fingerprint,
        })
    }

    pub(super) fn accepted(&mut self, id: u64) -> Vec<Action> {
        self.event(Event::Accepted(Accepted {
            id: RequestId(id),
            prompt_tokens: vec![TokenId(1), TokenId(2)],
            prompt_text: None,
        }))
    }

    /// Token `index` of choice 0, whose text is one letter.
    pub(super) fn token(&mut self, id: u64, index: u32) -> Vec<Action> {
        self.event(Event::Delta(delta(id, index)))
    }

    pub(super) fn choice_finished(&mut self, id: u64, count: u32) -> Vec<Action> {
        self.event(Event::ChoiceFinished(ChoiceFinished {
            id: RequestId(id),
            choice: ChoiceIndex(0),
            reason: FinishReason::Stop,
            token_count: count,
            text_offset: count,
            text: String::new(),
        }))
    }

    pub(super) fn finished(&mut self, id: u64, count: u32) -> Vec<Action> {
        self.event(Event::Finished(Finished {
            id: RequestId(id),
            usage: usage(count),
        }))
    }

    pub(super) fn failed(&mut self, id: u64, fault: Fault) -> Vec<Action> {
        let id = RequestId(id);
        self.event(Event::Failed(Rejected {
            id,
            fault,
            report: None,
        }))
    }

    pub(super) fn cancel(&mut self, id: u64) -> Vec<Action> {
        self.input(Input::Cancel { id: RequestId(id) })
    }

    pub(super) fn status(&self) -> Status {
        self.core.health().status
    }

    /// Nothing is left over.
    pub(super) fn assert_empty(&self) {
        let snapshot = self.core.snapshot();
        assert_eq!((snapshot.queue_depth, snapshot.in_flight), (0, 0));
        assert_eq!((self.core.ledger().len(), snapshot.ledger_bytes), (0, 0));
    }
}

fn participant(id: u64) -> Participant {
    Participant {
        request: RequestId(id),
        is_new: false,
    }
}

/// The generator is amid a step of these; the preparation has nothing to do.
pub(super) fn step(participants: &[u64]) -> Lanes {
    let participants = participants.iter().map(|id| participant(*id)).collect();
    Lanes {
        generator: Activity {
            changes: 2,
            doing: Doing::Shared { participants },
            ..Activity::default()
        },
        prepare: Activity::default(),
    }
}

/// As `lanes`, and the preparation is at this request.
pub(super) fn preparing(id: u64, lanes: Lanes) -> Lanes {
    Lanes {
        prepare: Activity {
            changes: 2,
            doing: Doing::Private {
                request: RequestId(id),
                phase: Phase::Prepare,
            },
            ..Activity::default()
        },
        ..lanes
    }
}

pub(super) fn usage(completion_tokens: u32) -> Usage {
    Usage {
        prompt_tokens: 2,
        cached_tokens: 0,
        completion_tokens,
    }
}

pub(super) fn delta(id: u64, index: u32) -> Delta {
    Delta {
        id: RequestId(id),
        choice: ChoiceIndex(0),
        token_index: index,
        token: TokenId(index),
        text_offset: index,
        text: "x".into(),
        logprobs: Vec::new(),
    }
}

/// The ids sent to the engine, with what they resume from.
pub(super) fn sent(actions: &[Action]) -> Vec<(u64, Option<Resume>)> {
    let submit = |action: &Action| match action {
        Action::Send {
            command: Command::Submit { id, resume, .. },
            ..
        } => Some((id.0, resume.clone())),
        _ => None,
    };
    actions.iter().filter_map(submit).collect()
}

/// What clients get, by request.
pub(super) fn delivered(actions: &[Action]) -> Vec<(u64, StreamEvent)> {
    let deliver = |action: &Action| match action {
        Action::Deliver { id, event } => Some((id.0, event.clone())),
        _ => None,
    };
    actions.iter().filter_map(deliver).collect()
}

/// The faults that ended requests.
pub(super) fn faults(actions: &[Action]) -> Vec<(u64, Fault)> {
    let fault = |(id, failure): (u64, RequestFailure)| (id, failure.fault);
    failures(actions).into_iter().map(fault).collect()
}

/// How requests failed, with all that is told about it.
pub(super) fn failures(actions: &[Action]) -> Vec<(u64, RequestFailure)> {
    let failure = |(id, event)| match event {
        StreamEvent::Failed(failure) => Some((id, failure)),
        _ => None,
    };
    delivered(actions).into_iter().filter_map(failure).collect()
}

/// Why the one submission was refused.
pub(super) fn refused(actions: &[Action]) -> Fault {
    match actions {
        [Action::Refuse { failure, .. }] => failure.fault.clone(),
        other => panic!("not a refusal: {other:?}"),
    }
}
