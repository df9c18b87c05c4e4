//! The scripted engine as a real process: the test binary runs itself again, with only the
//! test below, which then speaks the protocol on its standard input. How it behaves comes
//! from its environment (the whole life) and from `[words]` in prompts (one request).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use relight_protocol::recorder::{LANE_WORDS, Lane, LaneWriter};
use relight_protocol::{
    ArenaFds, Command, Event, Fault, FrameDecoder, PROTOCOL_VERSION, Promise, RequestId, frame,
};
use relight_supervisor::EngineCommand;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::scripted_engine::ScriptedEngine;

const LIFE: &str = "RELIGHT_TEST_LIFE";
const FOLDER: &str = "RELIGHT_TEST_FOLDER";

/// A command that starts this engine. `life` is one behaviour per engine, in order, the last
/// one for all that follow: `well`, `exit`, `silent`, `wrong-version`, `bad-frame`,
/// `load-failed`, `deaf`.
pub(crate) fn command(life: &str, folder: &Path) -> EngineCommand {
    let arguments = [
        "--exact",
        "scripted_process::speaks_when_it_is_started_as_an_engine",
        "--nocapture",
    ];
    let mut command = EngineCommand::new(std::env::current_exe().unwrap(), &arguments);
    command.environment = vec![
        (LIFE.into(), life.into()),
        (FOLDER.into(), folder.as_os_str().to_owned()),
        // With names looked up in a large test binary, it may take longer than a hang.
        ("RUST_BACKTRACE".into(), "0".into()),
    ];
    command
}

#[test]
fn speaks_when_it_is_started_as_an_engine() {
    let (Ok(life), Some(folder)) = (std::env::var(LIFE), std::env::var_os(FOLDER)) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let folder = PathBuf::from(folder);
    let lives: Vec<&str> = life.split(',').collect();
    let number = claim(&folder, "engine");
    let life = lives[number.min(lives.len() - 1)];
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    Process {
        pipe: UnixStream::from(stdin),
        decoder: FrameDecoder::default(),
        engine: ScriptedEngine::start(),
        folder,
        recorder: None,
        steps: 0,
    }
    .live(life);
}

/// How many engines have claimed this name before: files outlive them.
fn claim(folder: &Path, name: &str) -> usize {
    (0..)
        .find(|number| {
            let path = folder.join(format!("{name}.{number}"));
            std::fs::File::create_new(path).is_ok()
        })
        .unwrap()
}

struct Process {
    pipe: UnixStream,
    decoder: FrameDecoder,
    engine: ScriptedEngine,
    folder: PathBuf,
    recorder: Option<Recorder>,
    steps: u64,
}

/// The generator's lane, written as a file.
struct Recorder {
    file: std::fs::File,
    words: [AtomicU64; LANE_WORDS],
}

impl Recorder {
    fn open(arenas: ArenaFds) -> Self {
        Self {
            file: open(arenas.recorder),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn note(&self, write: impl FnOnce(&LaneWriter<'_>)) {
        write(&LaneWriter::new(&self.words));
        let words = self.words.iter();
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        let offset = Lane::Generator.offset() as u64;
        self.file.write_all_at(&bytes, offset).unwrap();
    }
}

impl Process {
    fn live(mut self, life: &str) {
        match life {
            "exit" => return,
            "silent" => self.listen_for_ever(),
            "wrong-version" => {
                self.say(&Event::Hello {
                    protocol_version: PROTOCOL_VERSION + 1,
                    promise: Promise::Exact,
                });
                self.listen_for_ever();
            }
            _ => self.flush(),
        }
        while let Some(command) = self.next_command() {
            if let Command::Load(config) = &command {
                let arenas = config.arenas.unwrap();
                check_arenas(arenas);
                self.recorder = Some(Recorder::open(arenas));
                match life {
                    "bad-frame" => self.pipe.write_all(&[0xff; 64]).unwrap(),
                    "load-failed" => {
                        let message = "no such file".into();
                        self.say(&Event::LoadFailed(Fault::ModelInvalid { message }));
                    }
                    _ => {}
                }
            }
            let is_over = command == Command::Shutdown;
            if !(is_over && life == "deaf") {
                self.engine.command(command);
            }
            self.flush();
            if is_over && life != "deaf" {
                return;
            }
        }
    }

    /// The next command; meanwhile the engine works.
    fn next_command(&mut self) -> Option<Command> {
        loop {
            if let Some(command) = self.decoder.next_value().unwrap() {
                return Some(command);
            }
            let wait = self.engine.is_busy().then(|| self.pace());
            self.pipe.set_read_timeout(wait).unwrap();
            let mut bytes = [0; 4096];
            match self.pipe.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.steps += 1;
                    let recorder = self.recorder.as_ref().unwrap();
                    let participants = self.engine.participants().into_iter();
                    recorder.note(|lane| lane.shared(self.steps, 0, participants));
                    self.obey_scripts();
                    self.engine.step();
                    self.recorder.as_ref().unwrap().note(|lane| lane.idle());
                    self.flush();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Time per step: long only if a script wants to be watched.
    fn pace(&self) -> Duration {
        let is_slow = self
            .engine
            .scripts()
            .any(|(text, _)| text.contains("[slow]"));
        Duration::from_millis(if is_slow { 20 } else { 1 })
    }

    fn obey_scripts(&mut self) {
        let due: Vec<String> = self
            .engine
            .scripts()
            .filter(|(_, next)| *next >= 5)
            .map(|(text, _)| text.to_owned())
            .collect();
        for script in due {
            let words = script.split(['[', ']']);
            for word in words {
                self.obey(word);
            }
        }
    }

    /// `NAME-once` happens in one engine only, `NAME` in each.
    fn obey(&mut self, word: &str) {
        let name = match word.strip_suffix("-once") {
            Some(name) if claim(&self.folder, name) > 0 => return,
            Some(name) => name,
            None => word,
        };
        match name {
            "abort" => std::process::abort(),
            "panic" => panic!("asked to"),
            "garbage" => self.pipe.write_all(&[0xff; 64]).unwrap(),
            "wrong-id" => {
                let id = RequestId(1 << 40);
                self.say(&Event::Failed(relight_protocol::Rejected {
                    id,
                    fault: Fault::OutOfMemory,
                    report: None,
                }));
            }
            "close" => {
                self.pipe.shutdown(std::net::Shutdown::Both).unwrap();
                self.park();
            }
            "hang" => self.park(),
            _ => {}
        }
    }

    fn flush(&mut self) {
        while let Some(event) = self.engine.said.pop_front() {
            self.say(&event);
        }
    }

    /// A closed pipe is how an engine learns that its supervisor is gone.
    fn say(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        frame::encode(event, &mut bytes).unwrap();
        if self.pipe.write_all(&bytes).is_err() {
            self.engine = ScriptedEngine::default();
        }
    }

    fn listen_for_ever(&mut self) {
        let mut rest = Vec::new();
        self.pipe.read_to_end(&mut rest).unwrap();
    }

    /// Only a signal ends this.
    fn park(&self) -> ! {
        loop {
            std::thread::park();
        }
    }
}

/// The arenas can be opened the way a real engine does it.
fn check_arenas(arenas: ArenaFds) {
    for fd in [arenas.weights, arenas.kv] {
        drop(open(fd));
    }
}

fn open(arena: i32) -> std::fs::File {
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{parent}/fd/{arena}"))
        .unwrap()
}
