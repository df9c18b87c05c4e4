//! A running `relight serve` with a tiny model.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use relight_tiny_model::TinyModel;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http::{self, Answer};

/// The server's process; killed with everything under it when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

/// The path of a model that all tests share.
pub(crate) fn model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let model = TinyModel {
            context: 2048,
            ..TinyModel::llama()
        };
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny-llama.gguf");
        // Several test processes may write it at once: each writes its own and renames.
        let own = path.with_extension(std::process::id().to_string());
        std::fs::write(&own, model.build()).unwrap();
        std::fs::rename(&own, &path).unwrap();
        path
    })
}

/// `relight` with these arguments, not started.
pub(crate) fn relight(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relight"));
    command.args(arguments).env("RELIGHT_LOG", "warn");
    command
}

impl Server {
    /// Starts a server on a free port and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_on(0, arguments)
    }

    pub(crate) fn start_on(port: u16, arguments: &[&str]) -> Self {
        let port = port.to_string();
        let mut command = relight(&[
            "serve",
            model().to_str().unwrap(),
            "--port",
            &port,
            "-t",
            "2",
        ]);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts this command and waits for its banner.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("spawn");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.next().expect("a banner").unwrap();
        let port = url
            .rsplit(':')
            .next()
            .and_then(|rest| rest.split('/').next());
        let port = port
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("no port in {url}"));
        // The rest of the banner follows at once, so the pipe never fills.
        Self { child, port }
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        http::send(self.port, "POST", path, Some(body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        http::send(self.port, "GET", path, None)
    }

    /// A completion that always has the same bytes.
    pub(crate) fn complete(&self, body: &Value) -> Value {
        let answer = self.post("/v1/completions", body);
        let status = answer.status;
        let body = answer.json();
        assert_eq!(status, 200, "{body}");
        body
    }

    /// A sample of a metric that has this label.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.get("/metrics").text();
        let start = format!("{name}{{");
        let sample = text
            .lines()
            .find(|line| line.starts_with(&start) && line.contains(label));
        let value = sample.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} with {label} in\n{text}"))
    }

    /// Orders a fault, as `relight inject` does.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn inject(&self, order: &Value) {
        let answer = self.post("/v1/faults/inject", order);
        let status = answer.status;
        assert_eq!(status, 200, "{order}: {}", answer.text());
    }

    pub(crate) fn engine_pid(&self) -> Pid {
        let health = self.get("/health").json();
        let pid = health["engine"]["pid"]
            .as_i64()
            .unwrap_or_else(|| panic!("no pid in {health}"));
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }

    /// A child of the front, asked of the system instead of the front.
    pub(crate) fn child_pid(&self) -> Option<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let children = tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all = children.collect::<String>();
        Pid::from_raw(all.split_whitespace().next()?.parse().ok()?)
    }

    pub(crate) fn kill_engine(&self) {
        kill_process(self.engine_pid(), Signal::KILL).expect("kill the engine");
    }

    /// Process of the front.
    pub(crate) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_pid()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal the front");
    }

    /// The exit status, once it has exited by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the front's end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if the process is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A long, varied completion.
pub(crate) fn long_prompt(text: &str, tokens: u32) -> Value {
    json!({ "prompt": text, "max_tokens": tokens, "ignore_eos": true, "temperature": 0 })
}
