//! Starting, stopping, and dying of the program itself.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use crate::server::{Server, long_prompt, model, relight};

#[test]
fn a_signal_drains_and_exits_with_success_and_the_port_is_free_at_once() {
    let server = Server::start(&[]);
    let port = server.port;
    let mut body = long_prompt("Short work ends", 40);
    body["stream"] = json!(true);
    let mut answer = server.post("/v1/completions", &body);
    answer.event().expect("an event");
    server.signal(Signal::TERM);
    let events = answer.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    assert!(server.wait().success());
    let next = Server::start_on(port, &[]);
    assert_eq!(next.get("/health").status, 200);
}

#[test]
fn work_that_outlasts_the_drain_ends_with_an_error_frame() {
    let server = Server::start(&["--shutdown-timeout", "0"]);
    let mut body = long_prompt("Long work", 900);
    body["stream"] = json!(true);
    let mut answer = server.post("/v1/completions", &body);
    answer.event().expect("an event");
    server.signal(Signal::TERM);
    let events = answer.events();
    let last = events.last().expect("a last event");
    assert!(last.starts_with("{\"error\":"), "{last}");
    assert!(!events.iter().any(|event| event == "[DONE]"));
    assert!(!server.wait().success());
}

#[test]
fn a_killed_front_leaves_no_engine_behind_and_its_port_is_free() {
    let server = Server::start(&[]);
    let engine = server.engine_pid();
    server.signal(Signal::KILL);
    let port = server.port;
    assert!(!server.wait().success());
    wait_for_end(engine);
    let next = Server::start_on(port, &[]);
    assert_eq!(next.get("/health").status, 200);
}

/// Returns when the process is gone; the kernel takes a moment to deliver its end.
fn wait_for_end(pid: Pid) {
    let gone = until(|| test_kill_process(pid).is_err().then_some(()));
    assert!(gone.is_some(), "the engine is still there");
}

/// Whether the server has room for one more connection.
fn is_let_in(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Looks again and again, for some seconds, at something that no event tells.
fn until<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let (_never, silence) = std::sync::mpsc::channel::<()>();
    for _ in 0..500 {
        if let Some(seen) = look() {
            return Some(seen);
        }
        let look_every = std::time::Duration::from_millis(10);
        silence.recv_timeout(look_every).unwrap_err();
    }
    None
}

#[test]
fn a_broken_model_is_refused_with_the_reason() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("truncated.gguf");
    let whole = std::fs::read(model()).unwrap();
    for bytes in [0, 37, 1000, whole.len() / 2] {
        std::fs::write(&path, &whole[..bytes]).unwrap();
        let output = relight(&["serve", path.to_str().unwrap(), "--port", "0"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let told = ["cut short", "the file ends at"];
        assert!(told.iter().any(|told| error.contains(told)), "{error}");
    }
}

#[test]
fn run_answers_a_prompt_from_arguments_and_from_standard_input() {
    let path = model().to_str().unwrap();
    let arguments = ["run", path, "Rivers", "-n", "12", "--temp", "0", "-t", "2"];
    let output = relight(&arguments).stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!output.stdout.is_empty());

    let mut child = relight(&["run", path, "-n", "12", "--temp", "0", "-t", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Rivers").unwrap();
    assert!(child.wait_with_output().unwrap().stdout == output.stdout);
}

#[test]
fn an_unknown_flag_is_a_usage_error_with_the_nearest_name() {
    let output = relight(&["serve", "--prot", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--port"));
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let mut command = relight(&["serve", model().to_str().unwrap(), "--port", "0", "-t", "2"]);
    command.env("RELIGHT_LOG", "trace").stderr(Stdio::piped());
    let server = Server::spawn(command);
    // Several times what a pipe holds.
    for _ in 0..1500 {
        assert_eq!(server.get("/health").status, 200);
    }
    let answer = server.complete(&long_prompt("Nobody reads this", 20));
    assert_eq!(answer["usage"]["completion_tokens"], json!(20));
    server.kill_engine();
    let answer = server.complete(&long_prompt("Nor that", 20));
    assert_eq!(answer["usage"]["completion_tokens"], json!(20));
}

#[test]
fn idle_connections_cannot_take_the_descriptors_of_an_engine() {
    let program = relight(&[]).get_program().to_owned();
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -n 84; exec \"$0\" serve \"$1\" --port 0 -t 2"])
        .arg(program)
        .arg(model())
        .env("RELIGHT_LOG", "off");
    let server = Server::spawn(command);
    let engine = server.engine_pid();
    let connect = || std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    // 84 descriptors, 64 of them reserved: some of these are refused, the first are kept.
    let idle: Vec<_> = (0..200).map(|_| connect()).collect();
    kill_process(engine, Signal::KILL).expect("kill the engine");
    wait_for_end(engine);
    let next = until(|| server.child_pid().filter(|pid| *pid != engine));
    assert!(next.is_some(), "no engine was started");
    drop(idle);
    // The front takes a moment to see that they are gone.
    let is_open = || is_let_in(server.port).then_some(());
    assert!(until(is_open).is_some(), "nobody is let in any more");
    let answer = server.complete(&long_prompt("There is room", 20));
    assert_eq!(answer["usage"]["completion_tokens"], json!(20));
}
