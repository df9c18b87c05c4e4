//! The supervisor's end of the control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use relight_protocol::{
    Command, EngineConfig, Event, FrameDecoder, Prompt, Request, RequestId, Resume, Sampling,
    StopRules, TokenId, frame,
};

/// A wait that only a broken engine exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    decoder: FrameDecoder,
}

impl Client {
    pub(crate) fn new(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self {
            socket,
            decoder: FrameDecoder::default(),
        };
        assert!(matches!(client.next(), Event::Hello { .. }));
        client
    }

    /// Has the engine load; returns how many times it reported progress.
    pub(crate) fn load(&mut self, config: EngineConfig) -> usize {
        self.send(&Command::Load(config));
        let mut reports = 0;
        loop {
            match self.next() {
                Event::Loading { .. } => reports += 1,
                Event::Ready(_) => return reports,
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn send(&mut self, command: &Command) {
        let mut bytes = Vec::new();
        frame::encode(command, &mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    pub(crate) fn submit(&mut self, id: u64, request: &Request, resume: Option<Resume>) {
        self.send(&Command::Submit {
            id: RequestId(id),
            request: Box::new(request.clone()),
            resume,
        });
    }

    pub(crate) fn next(&mut self) -> Event {
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

    /// All events up to the end of the socket, which must not come within a frame.
    pub(crate) fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            while let Some(event) = self.decoder.next_value().unwrap() {
                events.push(event);
            }
            let mut bytes = [0; 4096];
            let count = self.socket.read(&mut bytes).unwrap();
            if count == 0 {
                assert_eq!(self.decoder.unread_bytes(), 0, "half a frame");
                return events;
            }
            self.decoder.push(&bytes[..count]);
        }
    }

    /// The next event of a request.
    pub(crate) fn next_of_request(&mut self) -> Event {
        loop {
            let event = self.next();
            if !matches!(event, Event::Stats(_)) {
                return event;
            }
        }
    }

    /// Events of one request up to its end.
    pub(crate) fn stream(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next_of_request();
            let is_end = matches!(
                event,
                Event::Finished(_) | Event::Failed(_) | Event::Rejected(_)
            );
            events.push(event);
            if is_end {
                return events;
            }
        }
    }
}

/// A request for exactly this many tokens.
pub(crate) fn request(max_tokens: u32) -> Request {
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

pub(crate) fn tokens_of(events: &[Event]) -> Vec<TokenId> {
    let tokens = events.iter().filter_map(|event| match event {
        Event::Delta(delta) => Some(delta.token),
        _ => None,
    });
    tokens.collect()
}
