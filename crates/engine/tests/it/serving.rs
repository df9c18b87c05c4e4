use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use relight_engine::{EngineError, run_on};
use relight_protocol::{
    ChoiceIndex, ChoiceProgress, Command, EngineConfig, Event, Fault, FrameDecoder, Prompt,
    Request, RequestId, Resume, Sampling, StopRules, TokenId, frame,
};
use relight_tiny_model::TinyModel;

use crate::tiny_file::TinyFile;

/// A wait that only a broken engine exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The supervisor's end of a running engine.
struct Client {
    socket: UnixStream,
    decoder: FrameDecoder,
    engine: JoinHandle<Result<(), EngineError>>,
}

impl Client {
    fn start() -> Self {
        let (socket, engine_end) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let engine = std::thread::spawn(move || run_on(&engine_end));
        let mut client = Self {
            socket,
            decoder: FrameDecoder::default(),
            engine,
        };
        assert!(matches!(client.next(), Event::Hello { .. }));
        client
    }

    fn loaded(config: EngineConfig) -> Self {
        let mut client = Self::start();
        client.send(&Command::Load(config));
        loop {
            match client.next() {
                Event::Loading { .. } => {}
                Event::Ready(_) => return client,
                other => panic!("{other:?}"),
            }
        }
    }

    fn send(&mut self, command: &Command) {
        let mut bytes = Vec::new();
        frame::encode(command, &mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    fn submit(&mut self, id: u64, request: &Request, resume: Option<Resume>) {
        self.send(&Command::Submit {
            id: RequestId(id),
            request: Box::new(request.clone()),
            resume,
        });
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

    /// Events of one request up to its end.
    fn stream(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next();
            let is_end = matches!(
                event,
                Event::Finished(_) | Event::Failed(_) | Event::Rejected(_)
            );
            if !matches!(event, Event::Stats(_)) {
                events.push(event);
            }
            if is_end {
                return events;
            }
        }
    }

    fn hang_up(self) -> Result<(), EngineError> {
        drop(self.socket);
        self.engine.join().unwrap()
    }
}

fn request(max_tokens: u32) -> Request {
    Request {
        prompt: Prompt::Text("Once upon a time".to_owned()),
        choices: 1,
        sampling: Sampling::default(),
        stop: StopRules {
            max_tokens: Some(max_tokens),
            ignore_eos: true,
            ..StopRules::default()
        },
        logprobs: None,
        echo: false,
    }
}

fn tokens_of(events: &[Event]) -> Vec<TokenId> {
    let tokens = events.iter().filter_map(|event| match event {
        Event::Delta(delta) => Some(delta.token),
        _ => None,
    });
    tokens.collect()
}

#[test]
fn a_request_is_served_and_the_engine_ends_with_its_socket() {
    let file = TinyFile::of(&TinyModel::llama());
    let mut client = Client::loaded(file.config());
    client.submit(1, &request(5), None);
    let events = client.stream();
    assert!(matches!(events[0], Event::Accepted(_)));
    assert_eq!(tokens_of(&events).len(), 5);
    assert!(matches!(events[6], Event::ChoiceFinished(_)));
    assert!(matches!(events[7], Event::Finished(_)));
    client.hang_up().unwrap();
}

#[test]
fn a_resumed_request_goes_on_where_it_was() {
    let file = TinyFile::of(&TinyModel::llama());
    let mut client = Client::loaded(file.config());
    client.submit(1, &request(9), None);
    let whole = client.stream();
    client.hang_up().unwrap();
    let Event::Accepted(accepted) = &whole[0] else {
        panic!("{whole:?}");
    };
    let tokens = tokens_of(&whole);
    let mut client = Client::loaded(file.config());
    let resume = Resume {
        prompt_tokens: accepted.prompt_tokens.clone(),
        choices: vec![ChoiceProgress {
            choice: ChoiceIndex(0),
            tokens: tokens[..4].to_vec(),
            finished: false,
        }],
    };
    client.submit(1, &request(9), Some(resume));
    assert_eq!(client.stream(), whole[5..]);
    client.send(&Command::Shutdown);
    client.engine.join().unwrap().unwrap();
}

#[test]
fn a_cancelled_stream_ends_and_others_do_not() {
    let file = TinyFile::of(&TinyModel::llama());
    let mut client = Client::loaded(file.config());
    client.submit(1, &request(900), None);
    while !matches!(client.next(), Event::Delta(_)) {}
    client.send(&Command::Cancel { id: RequestId(1) });
    client.submit(2, &request(3), None);
    let events = client.stream();
    let Some(Event::Finished(finished)) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(finished.id, RequestId(2));
    client.hang_up().unwrap();
}

#[test]
fn a_template_error_rejects_its_request_only() {
    let file = TinyFile::of(&TinyModel::llama());
    let mut client = Client::loaded(file.config());
    let mut bad = request(3);
    bad.prompt = Prompt::Tokens(vec![TokenId(1 << 30)]);
    client.submit(1, &bad, None);
    let events = client.stream();
    assert!(matches!(
        events.as_slice(),
        [Event::Rejected(rejected)] if matches!(rejected.fault, Fault::InvalidRequest { .. })
    ));
    client.submit(2, &request(3), None);
    assert_eq!(tokens_of(&client.stream()).len(), 3);
    client.hang_up().unwrap();
}

#[test]
fn a_model_that_cannot_be_loaded_is_reported_before_the_end() {
    let file = TinyFile::with_bytes(b"GGUF");
    let mut client = Client::start();
    client.send(&Command::Load(file.config()));
    assert!(matches!(client.next(), Event::LoadFailed(_)));
    let ended = client.engine.join().unwrap();
    assert!(matches!(ended, Err(EngineError::Load(_))));
}

#[test]
fn what_makes_no_sense_ends_the_engine_with_a_reason() {
    let mut client = Client::start();
    client.send(&Command::Cancel { id: RequestId(1) });
    let ended = client.engine.join().unwrap();
    assert!(matches!(ended, Err(EngineError::OutOfTurn { .. })));

    let file = TinyFile::of(&TinyModel::llama());
    let mut client = Client::loaded(file.config());
    client.socket.write_all(&[0xff; 64]).unwrap();
    let ended = client.engine.join().unwrap();
    assert!(matches!(ended, Err(EngineError::Frame(_))));

    let client = Client::start();
    client.hang_up().unwrap();
}
