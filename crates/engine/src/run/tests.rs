//! The loop with its threads and a socket, on the fake backend.

use std::io::{Read, Write};
use std::time::Duration;

use relight_protocol::recorder::Doing;
use relight_protocol::{
    ChoiceIndex, ChoiceProgress, FrameDecoder, Prompt, Request, RequestId, Resume, Sampling,
    StopRules, TokenId, frame,
};

use super::*;
use crate::fake::FakeBackend;
use crate::report::keep_reports_in_tests;
use crate::scheduler::{Drafting, SchedulerConfig};
use crate::test_vocabulary::{self, language};

const PAGES: usize = 16;
/// A wait that only a broken engine exceeds.
const PATIENCE: Duration = Duration::from_secs(60);
const ID: RequestId = RequestId(7);

fn request(tokens: u32) -> Request {
    Request {
        prompt: Prompt::Tokens((3..40).map(TokenId).collect()),
        choices: 1,
        sampling: Sampling::default(),
        stop: StopRules {
            max_tokens: Some(tokens),
            ignore_eos: true,
            ..StopRules::default()
        },
        logprobs: None,
        echo: false,
    }
}

/// The other side of the socket: a supervisor that keeps a ledger of one request.
struct Front {
    socket: UnixStream,
    decoder: FrameDecoder,
    prompt: Vec<TokenId>,
    tokens: Vec<TokenId>,
    latches: usize,
}

impl Front {
    fn new(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            decoder: FrameDecoder::default(),
            prompt: Vec::new(),
            tokens: Vec::new(),
            latches: 0,
        }
    }

    fn send(&mut self, command: &Command) {
        let mut bytes = Vec::new();
        frame::encode(command, &mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.decoder.next_value().unwrap() {
                return event;
            }
            let mut bytes = [0; 4096];
            let count = self.socket.read(&mut bytes).unwrap();
            assert!(count > 0, "the engine hung up");
            self.decoder.push(&bytes[..count]);
        }
    }

    fn submit(&mut self, request: &Request) {
        let progress = ChoiceProgress {
            choice: ChoiceIndex(0),
            tokens: self.tokens.clone(),
            finished: false,
        };
        let resume = Resume {
            prompt_tokens: self.prompt.clone(),
            choices: vec![progress],
        };
        self.send(&Command::Submit {
            id: ID,
            request: Box::new(request.clone()),
            resume: (!self.prompt.is_empty()).then_some(resume),
        });
    }

    /// Runs a request to its end, over all latches; `look` is called at each.
    fn run(&mut self, request: &Request, mut look: impl FnMut(usize)) -> Vec<TokenId> {
        self.submit(request);
        loop {
            match self.next() {
                Event::Accepted(accepted) => self.prompt = accepted.prompt_tokens,
                Event::Delta(delta) => {
                    assert_eq!(delta.token_index as usize, self.tokens.len());
                    self.tokens.push(delta.token);
                }
                Event::Latched(latched) => {
                    let who = latched.participants.iter().map(|one| one.request);
                    assert_eq!(who.collect::<Vec<_>>(), [ID]);
                    assert!(latched.report.unwrap().contains("told to panic"));
                    self.latches += 1;
                    look(self.latches);
                    self.submit(request);
                }
                Event::Finished(finished) => {
                    let count = finished.usage.completion_tokens as usize;
                    assert_eq!(count, self.tokens.len());
                    return std::mem::take(&mut self.tokens);
                }
                Event::Started(_) | Event::Stats(_) | Event::ChoiceFinished(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Serves on a fake backend whose every so many-th step panics; `work` plays the front.
fn with_engine<T>(panic_every: Option<usize>, work: impl FnOnce(&mut Front, &Recorder) -> T) -> T {
    keep_reports_in_tests();
    let language = language();
    let (socket, engine_end) = UnixStream::pair().unwrap();
    let recorder = Arc::new(Recorder::open(None).unwrap());
    std::thread::scope(|scope| {
        let (language, recorder_of_engine) = (&language, Arc::clone(&recorder));
        let engine = scope.spawn(move || {
            let mut backend = FakeBackend::new(test_vocabulary::SIZE, PAGES);
            backend.panic_every = panic_every;
            let config = SchedulerConfig {
                slots: 4,
                batch_rows: 512,
                chunk_rows: 512,
                drafting: Drafting::Adaptive,
            };
            let context = PrepareContext {
                language,
                context_tokens: 64 * 16,
                now_unix_seconds: 0,
            };
            let commands = CommandReader::new(engine_end.try_clone().unwrap());
            let outbox = Outbox::new(engine_end.try_clone().unwrap());
            let core = Core::new(backend, config, 1);
            let context = (context, recorder_of_engine);
            serve(core, context, &engine_end, (commands, outbox))
        });
        let mut front = Front::new(socket);
        let result = work(&mut front, &recorder);
        front.send(&Command::Shutdown);
        engine.join().unwrap().unwrap();
        result
    })
}

#[test]
fn a_latched_generator_is_replaced_and_the_stream_goes_on() {
    let undisturbed = with_engine(None, |front, _recorder| front.run(&request(30), |_| {}));
    let latched = with_engine(Some(3), |front, _recorder| {
        let tokens = front.run(&request(30), |_| {});
        assert_eq!(front.latches, 14);
        tokens
    });
    assert_eq!(latched, undisturbed);
}

#[test]
fn an_engine_that_waits_for_work_says_so_in_the_recorder() {
    with_engine(None, |front, recorder| {
        let recorded = |lane| recorder.activity(lane);
        front.run(&request(3), |_| {});
        // Preparing came before the first token, so its lane has been at rest for long.
        let prepare = recorded(Lane::Prepare);
        assert_eq!(prepare.doing, Doing::Idle);
        assert!(prepare.changes > 2);
        assert_eq!(recorded(Lane::Generator).step, 3);
    });
}

const ALONE: &str = "RELIGHT_TEST_ALONE";

/// In a process of its own, because other tests take memory too.
#[test]
fn a_hundred_latches_leave_memory_flat() {
    if std::env::var_os(ALONE).is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run::tests::a_hundred_latches_leave_memory_flat"])
            .env(ALONE, "yes")
            .output()
            .unwrap();
        assert!(alone.status.success(), "{alone:?}");
        return;
    }
    let mut sizes = Vec::new();
    with_engine(Some(2), |front, _recorder| {
        front.run(&request(121), |latches| {
            if latches % 20 == 0 {
                sizes.push(resident_bytes());
            }
        });
        assert_eq!(front.latches, 120);
    });
    let (first, last) = (sizes[0], sizes[5]);
    assert!(last < first + (1 << 20), "{sizes:?}");
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
