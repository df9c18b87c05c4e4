//! Real children, real signals.

use std::path::{Path, PathBuf};
use std::time::Duration;

use relight_protocol::{EngineConfig, Fault, FinishReason, Overload, Request, Usage, limits};
use relight_supervisor::{
    Bounds, FaultKind, Handle, Health, RequestStream, Status, StreamEvent, Supervisor,
    SupervisorConfig, SupervisorThread,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::scripted_engine::{count, foretell, prompt_tokens, request};
use crate::scripted_process::command;

/// Longer than anything here takes: only a bug reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A supervisor over scripted engines, and a folder that is gone afterwards.
struct Bench {
    handle: Handle,
    thread: Option<SupervisorThread>,
    folder: PathBuf,
}

impl Bench {
    fn start(name: &str, life: &str) -> Self {
        Self::start_with(name, life, Bounds::default())
    }

    fn start_with(name: &str, life: &str, bounds: Bounds) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        let (handle, thread) = Supervisor::start(SupervisorConfig {
            command: command(life, &folder),
            engine: engine_config(),
            bounds,
        })
        .unwrap();
        Self {
            handle,
            thread: Some(thread),
            folder,
        }
    }

    async fn ready(name: &str) -> Self {
        let bench = Self::start(name, "well");
        within(bench.handle.wait_ready()).await.unwrap();
        bench
    }

    fn pid(&self) -> Pid {
        let pid = self.handle.health().engine_pid.unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    /// Waits until health says so.
    async fn health_is(&self, wanted: impl Fn(&Health) -> bool) -> Health {
        within(async {
            let mut every = tokio::time::interval(Duration::from_millis(5));
            loop {
                every.tick().await;
                let health = self.handle.health();
                if wanted(&health) {
                    return health;
                }
            }
        })
        .await
    }

    /// Ends everything and checks that no process is left.
    async fn end(mut self) -> relight_supervisor::DrainReport {
        let report = within(self.handle.shutdown(Duration::ZERO)).await;
        within(self.handle.stopped()).await;
        assert_eq!(self.handle.health().status, Status::Stopped);
        assert!(self.thread.take().unwrap().join());
        report
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn engine_config() -> EngineConfig {
    EngineConfig {
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
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

/// Everything a client got.
#[derive(Debug, PartialEq)]
struct Received {
    texts: Vec<String>,
    reasons: Vec<Option<FinishReason>>,
    last: StreamEvent,
}

async fn receive(stream: &mut RequestStream, choices: u16) -> Received {
    let mut received = Received {
        texts: vec![String::new(); usize::from(choices)],
        reasons: vec![None; usize::from(choices)],
        last: StreamEvent::Failed(Fault::Cancelled.into()),
    };
    while let Some(event) = within(stream.next()).await {
        let mut append = |choice: u16, offset: u32, text: &str| {
            let target = &mut received.texts[usize::from(choice)];
            assert_eq!(offset as usize, target.len());
            target.push_str(text);
        };
        match event {
            StreamEvent::Accepted { .. } => {}
            StreamEvent::Delta(delta) => append(delta.choice.0, delta.text_offset, &delta.text),
            StreamEvent::ChoiceFinished(end) => {
                append(end.choice.0, end.text_offset, &end.text);
                received.reasons[usize::from(end.choice.0)] = Some(end.reason);
            }
            last => received.last = last,
        }
    }
    received
}

/// What an undisturbed engine would have given.
fn undisturbed(request: &Request) -> Received {
    let answers: Vec<_> = (0..request.choices)
        .map(|choice| foretell(request, choice))
        .collect();
    let completion_tokens = answers
        .iter()
        .map(|answer| answer.tokens.len())
        .sum::<usize>();
    Received {
        texts: answers.iter().map(|answer| answer.text.clone()).collect(),
        reasons: answers.iter().map(|answer| Some(answer.reason)).collect(),
        last: StreamEvent::Finished(Usage {
            prompt_tokens: count(prompt_tokens(request).len()),
            cached_tokens: 0,
            completion_tokens: count(completion_tokens),
        }),
    }
}

/// Reads deltas until `count` have come.
async fn read_deltas(stream: &mut RequestStream, count: usize) -> String {
    let mut text = String::new();
    let mut seen = 0;
    while seen < count {
        if let StreamEvent::Delta(delta) = within(stream.next()).await.unwrap() {
            text.push_str(&delta.text);
            seen += 1;
        }
    }
    text
}

#[tokio::test]
async fn a_request_is_answered_and_a_shutdown_leaves_no_process() {
    let bench = Bench::ready("answered").await;
    let pid = bench.pid();
    let request = request("hello", 2, 20);
    let mut stream = bench.handle.submit(request.clone()).await.unwrap();
    assert_eq!(receive(&mut stream, 2).await, undisturbed(&request));
    let report = bench.end().await;
    assert!(report.clean, "{report:?}");
    assert!(is_gone(pid));
}

#[tokio::test]
async fn sigkill_in_mid_stream_is_a_pause_for_everyone() {
    let bench = Bench::ready("sigkill").await;
    let former = bench.pid();
    let requests: Vec<Request> = (0..8)
        .map(|number| request(&format!("[slow] stream {number}"), 1 + number % 3, 60))
        .collect();
    let mut streams = Vec::new();
    for request in &requests {
        streams.push(bench.handle.submit(request.clone()).await.unwrap());
    }
    let heads = read_deltas(&mut streams[0], 6).await;
    kill_process(former, Signal::KILL).unwrap();
    for (stream, request) in streams.iter_mut().zip(&requests).skip(1) {
        let received = receive(stream, request.choices).await;
        assert_eq!(received, undisturbed(request));
    }
    let mut rest = String::new();
    while let Some(event) = within(streams[0].next()).await {
        match event {
            StreamEvent::Delta(delta) => rest.push_str(&delta.text),
            StreamEvent::ChoiceFinished(end) => rest.push_str(&end.text),
            other => assert!(matches!(other, StreamEvent::Finished(_)), "{other:?}"),
        }
    }
    assert_eq!(heads + &rest, foretell(&requests[0], 0).text);
    assert!(is_gone(former), "the dead engine is reaped");
    let snapshot = bench.handle.snapshot();
    assert_eq!(snapshot.restarts.get("killed"), Some(&1));
    assert_eq!(snapshot.requests_resumed_total, 8);
    assert_eq!(snapshot.recoveries.total_count, 1);
    assert_eq!(snapshot.in_flight, 0);
    assert_eq!(bench.handle.health().restarts, 1);
    bench.end().await;
}

/// One request whose engine does something terrible in the middle of it, once.
async fn survives(name: &str, cause: &str) {
    let bench = Bench::ready(name).await;
    let request = request(&format!("[{name}-once]"), 1, 24);
    let mut stream = bench.handle.submit(request.clone()).await.unwrap();
    assert_eq!(receive(&mut stream, 1).await, undisturbed(&request));
    let snapshot = bench.handle.snapshot();
    assert_eq!(snapshot.restarts.get(cause), Some(&1), "{snapshot:?}");
    assert!(bench.end().await.clean);
}

#[tokio::test]
async fn an_abort_is_survived() {
    survives("abort", "abort").await;
}

#[tokio::test]
async fn a_panic_that_ends_the_engine_is_survived() {
    survives("panic", "panic").await;
}

#[tokio::test]
async fn garbage_on_the_pipe_is_survived() {
    survives("garbage", "ipc").await;
}

#[tokio::test]
async fn an_event_for_a_request_that_never_was_is_survived() {
    survives("wrong-id", "protocol").await;
}

#[tokio::test]
async fn a_pipe_closed_by_a_living_engine_is_survived() {
    survives("close", "killed").await;
}

#[tokio::test]
async fn a_request_that_kills_twice_is_refused_from_then_on() {
    let bench = Bench::ready("killer").await;
    let killer = request("[abort]", 1, 24);
    let mut stream = bench.handle.submit(killer.clone()).await.unwrap();
    let received = receive(&mut stream, 1).await;
    let StreamEvent::Failed(failure) = received.last else {
        panic!("{received:?}");
    };
    assert_eq!(
        (&failure.fault, failure.guilty),
        (&Fault::EngineCrashed, true)
    );
    assert_eq!(bench.handle.health().restarts, 2);
    let again = bench.handle.submit(killer.clone()).await.unwrap_err();
    assert_eq!(again.fault, Fault::Quarantined);
    assert_eq!(again.fault_id, failure.fault_id);
    let faults = bench.handle.faults();
    let kinds: Vec<&str> = faults.iter().map(|fault| fault.kind.word()).collect();
    assert_eq!(kinds, ["engine_death", "engine_death", "quarantine"]);
    assert_eq!(Some(faults[2].id), failure.fault_id);
    assert!(faults.iter().all(|fault| fault.suspects == [stream.id()]));
    let innocent = request("innocent", 1, 24);
    let mut stream = bench.handle.submit(innocent.clone()).await.unwrap();
    assert_eq!(receive(&mut stream, 1).await, undisturbed(&innocent));
    let quarantined = bench.handle.quarantined();
    assert_eq!(quarantined.len(), 1);
    assert!(quarantined[0].left > Duration::from_secs(500));
    let fingerprint = Some(quarantined[0].fingerprint);
    assert_eq!(within(bench.handle.lift(fingerprint)).await, 1);
    assert!(bench.handle.quarantined().is_empty());
    assert_eq!(within(bench.handle.lift(None)).await, 0);
    drop(bench.handle.submit(killer).await.unwrap());
    bench.end().await;
}

#[tokio::test]
async fn engines_that_die_before_they_serve_are_replaced() {
    let bench = Bench::start("early-deaths", "exit,wrong-version,bad-frame,well");
    let request = request("patient", 1, 8);
    let mut stream = bench.handle.submit(request.clone()).await.unwrap();
    assert_eq!(receive(&mut stream, 1).await, undisturbed(&request));
    let restarts = bench.handle.snapshot().restarts;
    let expected = [("exit", 1), ("ipc", 1), ("protocol", 1)];
    assert_eq!(restarts.into_iter().collect::<Vec<_>>(), expected);
    bench.end().await;
}

#[tokio::test]
async fn an_engine_that_says_nothing_is_killed_in_time() {
    let bounds = Bounds {
        hello_ms_max: 200,
        ..Bounds::default()
    };
    let bench = Bench::start_with("silent", "silent,well", bounds);
    within(bench.handle.wait_ready()).await.unwrap();
    assert_eq!(bench.handle.snapshot().restarts.get("hello"), Some(&1));
    bench.end().await;
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_is_said_once_and_not_tried_again() {
    let bench = Bench::start("load-failed", "load-failed");
    let fault = Fault::ModelInvalid {
        message: "no such file".into(),
    };
    let waited = within(bench.handle.wait_ready()).await;
    assert_eq!(waited.unwrap_err(), fault);
    let refused = bench.handle.submit(request("x", 1, 1)).await;
    assert_eq!(refused.unwrap_err().fault, fault);
    let health = bench.health_is(|health| health.engine_pid.is_none()).await;
    assert_eq!((health.status, health.restarts), (Status::Failed, 0));
    assert!(bench.folder.join("engine.0").exists());
    assert!(!bench.folder.join("engine.1").exists());
    assert!(bench.end().await.clean);
}

#[tokio::test]
async fn a_program_that_is_not_there_fails_requests_and_goes_on_probing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut command = command("well", &folder);
    command.program = folder.join("no-such-program");
    let (handle, thread) = Supervisor::start(SupervisorConfig {
        command,
        engine: engine_config(),
        bounds: Bounds::default(),
    })
    .unwrap();
    let mut stream = handle.submit(request("x", 1, 1)).await.unwrap();
    let received = receive(&mut stream, 1).await;
    let StreamEvent::Failed(failure) = received.last else {
        panic!("{received:?}");
    };
    assert_eq!(failure.fault, Fault::EngineUnavailable);
    let last = handle.faults().last().unwrap().id;
    assert!(failure.fault_id.is_some_and(|fault_id| fault_id <= last));
    let refused = handle.submit(request("x", 1, 1)).await;
    assert_eq!(refused.unwrap_err().fault, Fault::EngineUnavailable);
    let health = handle.health();
    assert_eq!(health.status, Status::Failed);
    assert_eq!(health.restarts, limits::RESTARTS_MAX as u64 + 1);
    assert!(
        health
            .last_fault
            .unwrap()
            .0
            .contains("could not be started")
    );
    within(handle.shutdown(Duration::ZERO)).await;
    assert!(thread.join());
}

#[tokio::test]
async fn a_drain_lets_short_work_finish_and_says_so_when_it_cuts_long_work() {
    let bench = Bench::ready("drain").await;
    let short = request("[slow] short", 1, 4);
    let long = request("[slow] long", 1, 4000);
    let mut short_stream = bench.handle.submit(short.clone()).await.unwrap();
    let mut long_stream = bench.handle.submit(long).await.unwrap();
    read_deltas(&mut long_stream, 1).await;
    let handle = bench.handle.clone();
    let drain = handle.shutdown(Duration::from_millis(2000));
    let client = async {
        let received = receive(&mut short_stream, 1).await;
        assert_eq!(received, undisturbed(&short));
        bench
            .health_is(|health| health.status == Status::Draining)
            .await;
        let late = bench.handle.submit(request("late", 1, 1)).await;
        let draining = |fault: &Fault| {
            matches!(
                fault,
                Fault::Overloaded {
                    resource: Overload::Draining,
                    ..
                }
            )
        };
        assert!(draining(&late.unwrap_err().fault));
        let received = receive(&mut long_stream, 1).await;
        let StreamEvent::Failed(failure) = received.last else {
            panic!("cut work must fail");
        };
        assert!(draining(&failure.fault));
    };
    let (report, ()) = within(async { tokio::join!(drain, client) }).await;
    assert_eq!((report.failed, report.clean), (1, false));
}

#[tokio::test]
async fn an_engine_that_does_not_obey_the_shutdown_is_killed() {
    let bench = Bench::start("deaf", "deaf");
    within(bench.handle.wait_ready()).await.unwrap();
    let pid = bench.pid();
    let report = bench.end().await;
    assert!(!report.clean);
    assert!(is_gone(pid));
}

#[tokio::test]
async fn a_dropped_stream_frees_its_place_and_disturbs_nobody() {
    let bench = Bench::ready("dropped").await;
    let mut gone = bench
        .handle
        .submit(request("[slow] gone", 1, 4000))
        .await
        .unwrap();
    let stays = request("[slow] stays", 1, 12);
    let mut stream = bench.handle.submit(stays.clone()).await.unwrap();
    read_deltas(&mut gone, 2).await;
    drop(gone);
    assert_eq!(receive(&mut stream, 1).await, undisturbed(&stays));
    let snapshot = bench.handle.snapshot();
    assert_eq!(snapshot.requests.get("cancelled"), Some(&1));
    assert_eq!((snapshot.in_flight, snapshot.ledger_bytes), (0, 0));
    bench.end().await;
}

#[tokio::test]
async fn a_reader_that_falls_behind_fails_alone() {
    let bounds = Bounds {
        reader_events_max: 8,
        ..Bounds::default()
    };
    let bench = Bench::start_with("slow-reader", "well", bounds);
    within(bench.handle.wait_ready()).await.unwrap();
    let mut slow = bench
        .handle
        .submit(request("slow reader", 1, 1000))
        .await
        .unwrap();
    let failed = |health: &Health| {
        health.engine_pid.is_some() && bench.handle.snapshot().requests.contains_key("failed")
    };
    bench.health_is(failed).await;
    let quick = request("quick reader", 1, 100);
    let mut stream = bench.handle.submit(quick.clone()).await.unwrap();
    assert_eq!(receive(&mut stream, 1).await, undisturbed(&quick));
    let received = receive(&mut slow, 1).await;
    let StreamEvent::Failed(failure) = received.last else {
        panic!("{received:?}");
    };
    let Fault::Overloaded { resource, .. } = failure.fault else {
        panic!("{failure:?}");
    };
    assert_eq!(resource, Overload::ReaderTooSlow);
    let records = bench.handle.faults();
    assert_eq!(records[0].kind, FaultKind::ReaderTooSlow);
    assert_eq!(Some(records[0].id), failure.fault_id);
    assert!(
        foretell(&request("slow reader", 1, 1000), 0)
            .text
            .starts_with(&received.texts[0])
    );
    assert_eq!(bench.handle.health().restarts, 0);
    bench.end().await;
}

#[tokio::test]
async fn health_answers_while_the_engine_hangs_and_a_drain_gets_rid_of_it() {
    let bench = Bench::ready("hang").await;
    let pid = bench.pid();
    let mut stream = bench
        .handle
        .submit(request("[hang]", 1, 100))
        .await
        .unwrap();
    read_deltas(&mut stream, 5).await;
    let health = bench.handle.health();
    assert_eq!(
        health.engine_pid,
        Some(pid.as_raw_nonzero().get().cast_unsigned())
    );
    let report = within(bench.handle.shutdown(Duration::ZERO)).await;
    assert_eq!((report.failed, report.clean), (1, false));
    assert!(is_gone(pid));
    let received = receive(&mut stream, 1).await;
    assert!(matches!(received.last, StreamEvent::Failed(_)));
}

fn impatient() -> Bounds {
    Bounds {
        hang_timeout_ms: 2000,
        ..Bounds::default()
    }
}

#[tokio::test]
async fn an_engine_that_hangs_amid_a_step_is_replaced_and_nobody_fails() {
    let bench = Bench::start_with("hang-step", "well", impatient());
    within(bench.handle.wait_ready()).await.unwrap();
    let stuck = request("[hang-once]", 1, 24);
    let beside = request("[slow] beside", 2, 24);
    let mut first = bench.handle.submit(stuck.clone()).await.unwrap();
    let mut second = bench.handle.submit(beside.clone()).await.unwrap();
    assert_eq!(receive(&mut first, 1).await, undisturbed(&stuck));
    assert_eq!(receive(&mut second, 2).await, undisturbed(&beside));
    assert_eq!(bench.handle.snapshot().restarts.get("hang"), Some(&1));
    let faults = bench.handle.faults();
    assert_eq!((faults.len(), faults[0].phase), (1, Some("step")));
    bench.end().await;
}

#[tokio::test]
async fn a_stopped_engine_is_replaced_while_requests_wait_for_it() {
    let bench = Bench::start_with("sigstop", "well", impatient());
    within(bench.handle.wait_ready()).await.unwrap();
    // Idle: it is not missed before there is work, which it will not even read.
    kill_process(bench.pid(), Signal::STOP).unwrap();
    let request = request("patient", 1, 8);
    let mut stream = bench.handle.submit(request.clone()).await.unwrap();
    assert_eq!(receive(&mut stream, 1).await, undisturbed(&request));
    let snapshot = bench.handle.snapshot();
    assert_eq!(snapshot.restarts.get("hang"), Some(&1));
    assert_eq!(snapshot.suspects, 0);
    bench.end().await;
}

#[tokio::test]
async fn losing_every_handle_ends_the_supervisor_and_its_engine() {
    let mut bench = Bench::ready("handles").await;
    let pid = bench.pid();
    let thread = bench.thread.take().unwrap();
    drop(bench);
    assert!(
        within(tokio::task::spawn_blocking(|| thread.join()))
            .await
            .unwrap()
    );
    assert!(is_gone(pid));
}
