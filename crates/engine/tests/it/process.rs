//! The engine as the process that it is in service: memory by descriptor, death by signal.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use relight_protocol::recorder::{Activity, Doing, LANE_BYTES, Lane, RECORDER_BYTES};
use relight_protocol::{
    ArenaFds, ChoiceIndex, ChoiceProgress, Command, EngineConfig, Event, Resume, TokenId,
};
use relight_tiny_model::TinyModel;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::client::{Client, request, tokens_of};
use crate::tiny_file::TinyFile;

const ROLE: &str = "RELIGHT_TEST_ENGINE";

/// The test binary starts itself again with only this test, which then is the engine.
#[test]
fn is_an_engine_when_started_as_one() {
    if std::env::var_os(ROLE).is_some() {
        relight_engine::run().unwrap();
    }
}

pub(crate) fn start() -> (Client, Child) {
    let (socket, engine_end) = UnixStream::pair().unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::is_an_engine_when_started_as_one"])
        .env(ROLE, "yes")
        .stdin(Stdio::from(OwnedFd::from(engine_end)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    (Client::new(socket), child)
}

pub(crate) fn memory_file(name: &str) -> OwnedFd {
    memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap()
}

/// As the supervisor reads it.
fn read_lane(recorder: &File, lane: Lane) -> Activity {
    let mut bytes = [0; LANE_BYTES];
    let start = lane.offset() as u64;
    recorder.read_exact_at(&mut bytes, start).unwrap();
    Activity::decode(&bytes)
}

/// The stream of a request that is cut by SIGKILL after any of its tokens, and goes on at
/// the next engine, is the stream that was not cut.
#[test]
fn a_killed_engine_is_replaced_and_its_stream_goes_on() {
    let file = TinyFile::of(&TinyModel::llama());
    let (weights, kv) = (memory_file("weights"), memory_file("kv"));
    let recorder = memory_file("recorder");
    ftruncate(&recorder, RECORDER_BYTES as u64).unwrap();
    let config = EngineConfig {
        arenas: Some(ArenaFds {
            weights: weights.as_raw_fd(),
            kv: kv.as_raw_fd(),
            recorder: recorder.as_raw_fd(),
        }),
        pages: None,
        ..file.config()
    };
    let (mut client, mut child) = start();
    assert!(client.load(config.clone()) > 0);
    client.submit(1, &request(12), None);
    let whole = client.stream();
    let Event::Accepted(accepted) = &whole[0] else {
        panic!("{whole:?}");
    };
    let tokens: Vec<TokenId> = tokens_of(&whole);
    client.submit(2, &request(900), None);
    while !matches!(client.next(), Event::Delta(_)) {}
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let recorder = File::from(recorder);
    let generator = read_lane(&recorder, Lane::Generator);
    assert!(generator.step > 12, "{generator:?}");
    assert!(generator.predicted_ms > 0, "{generator:?}");
    let prepare = read_lane(&recorder, Lane::Prepare);
    assert_eq!(prepare.doing, Doing::Idle);

    let (mut client, mut child) = start();
    assert_eq!(client.load(config), 0, "the weights are there");
    let generator = read_lane(&recorder, Lane::Generator);
    assert_eq!(generator.doing, Doing::Idle, "the dead one's is gone");
    for count in [0, 1, 5, 11, 12] {
        let resume = Resume {
            prompt_tokens: accepted.prompt_tokens.clone(),
            choices: vec![ChoiceProgress {
                choice: ChoiceIndex(0),
                tokens: tokens[..count].to_vec(),
                finished: false,
            }],
        };
        client.submit(3, &request(12), Some(resume));
        let rest = client.stream();
        // The usage tells how much was cached, which an earlier request has changed.
        let (end, rest) = rest.split_last().unwrap();
        assert!(matches!(end, Event::Finished(_)));
        let rest = match rest.split_first() {
            Some((Event::Started(_), rest)) => rest,
            _ => rest,
        };
        let expected: Vec<Event> = whole[2 + count..whole.len() - 1]
            .iter()
            .cloned()
            .map(|event| with_id(event, 3))
            .collect();
        assert_eq!(rest, expected, "{count} tokens were known");
    }
    drop(client);
    assert!(child.wait().unwrap().success(), "it ends with its socket");
}

fn with_id(event: Event, id: u64) -> Event {
    let id = relight_protocol::RequestId(id);
    match event {
        Event::Delta(delta) => Event::Delta(relight_protocol::Delta { id, ..delta }),
        Event::ChoiceFinished(end) => {
            Event::ChoiceFinished(relight_protocol::ChoiceFinished { id, ..end })
        }
        other => other,
    }
}

/// It finishes what it is at, sends what that gave, and exits with success, though it was busy.
#[test]
fn an_engine_that_is_told_to_end_ends_in_order() {
    let file = TinyFile::of(&TinyModel::llama());
    let (mut client, mut child) = start();
    client.load(file.config());
    client.submit(1, &request(900), None);
    client.submit(2, &request(900), None);
    while !matches!(client.next(), Event::Delta(_)) {}
    client.send(&Command::Shutdown);
    // Whole frames only, up to the end of the socket, which comes with the end of the process.
    let rest = client.rest();
    assert!(rest.len() < 2 * 900, "it did not wait for the streams");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
