use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use relight_engine::{EngineError, run_on};
use relight_protocol::{
    ChoiceIndex, ChoiceProgress, Command, EngineConfig, Event, Fault, Prompt, RequestId, Resume,
    Started, TokenId,
};
use relight_tiny_model::TinyModel;

use crate::client::{Client, request, tokens_of};
use crate::tiny_file::TinyFile;

/// An engine on a thread of this process.
struct Engine(JoinHandle<Result<(), EngineError>>);

impl Engine {
    fn start() -> (Client, Self) {
        let (socket, engine_end) = UnixStream::pair().unwrap();
        let engine = std::thread::spawn(move || run_on(&engine_end));
        (Client::new(socket), Self(engine))
    }

    fn loaded(config: EngineConfig) -> (Client, Self) {
        let (mut client, engine) = Self::start();
        client.load(config);
        (client, engine)
    }

    fn end(self) -> Result<(), EngineError> {
        self.0.join().unwrap()
    }
}

#[test]
fn a_request_is_served_and_the_engine_ends_with_its_socket() {
    let file = TinyFile::of(&TinyModel::llama());
    let (mut client, engine) = Engine::loaded(file.config());
    client.submit(1, &request(5), None);
    let events = client.stream();
    assert!(matches!(events[0], Event::Accepted(_)));
    assert_eq!(tokens_of(&events).len(), 5);
    let started = Event::Started(Started {
        id: RequestId(1),
        cached_tokens: 0,
    });
    assert_eq!(events[1], started);
    assert!(matches!(events[7], Event::ChoiceFinished(_)));
    assert!(matches!(events[8], Event::Finished(_)));
    drop(client);
    engine.end().unwrap();
}

#[test]
fn a_resumed_request_goes_on_where_it_was() {
    let file = TinyFile::of(&TinyModel::llama());
    let (mut client, engine) = Engine::loaded(file.config());
    client.submit(1, &request(9), None);
    let whole = client.stream();
    drop(client);
    engine.end().unwrap();
    let Event::Accepted(accepted) = &whole[0] else {
        panic!("{whole:?}");
    };
    let tokens = tokens_of(&whole);
    let (mut client, engine) = Engine::loaded(file.config());
    let resume = Resume {
        prompt_tokens: accepted.prompt_tokens.clone(),
        choices: vec![ChoiceProgress {
            choice: ChoiceIndex(0),
            tokens: tokens[..4].to_vec(),
            finished: false,
        }],
    };
    client.submit(1, &request(9), Some(resume));
    let rest = client.stream();
    assert!(matches!(rest[0], Event::Started(_)));
    assert_eq!(rest[1..], whole[6..]);
    client.send(&Command::Shutdown);
    engine.end().unwrap();
}

#[test]
fn a_cancelled_stream_ends_and_others_do_not() {
    let file = TinyFile::of(&TinyModel::llama());
    let (mut client, engine) = Engine::loaded(file.config());
    client.submit(1, &request(900), None);
    while !matches!(client.next(), Event::Delta(_)) {}
    client.send(&Command::Cancel { id: RequestId(1) });
    client.submit(2, &request(3), None);
    let events = client.stream();
    let Some(Event::Finished(finished)) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(finished.id, RequestId(2));
    drop(client);
    engine.end().unwrap();
}

#[test]
fn a_refused_request_leaves_the_others_alone() {
    let file = TinyFile::of(&TinyModel::llama());
    let (mut client, engine) = Engine::loaded(file.config());
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
    drop(client);
    engine.end().unwrap();
}

#[test]
fn a_model_that_cannot_be_loaded_is_reported_before_the_end() {
    let file = TinyFile::with_bytes(b"GGUF");
    let (mut client, engine) = Engine::start();
    client.send(&Command::Load(file.config()));
    assert!(matches!(client.next(), Event::LoadFailed(_)));
    let ended = engine.end();
    assert!(matches!(ended, Err(EngineError::Load(_))));
}

#[test]
fn what_makes_no_sense_ends_the_engine_with_a_reason() {
    let (mut client, engine) = Engine::start();
    client.send(&Command::Cancel { id: RequestId(1) });
    let ended = engine.end();
    assert!(matches!(ended, Err(EngineError::OutOfTurn { .. })));

    let file = TinyFile::of(&TinyModel::llama());
    let (mut client, engine) = Engine::loaded(file.config());
    client.socket.write_all(&[0xff; 64]).unwrap();
    let ended = engine.end();
    assert!(matches!(ended, Err(EngineError::Frame(_))));

    let (client, engine) = Engine::start();
    drop(client);
    engine.end().unwrap();
}
