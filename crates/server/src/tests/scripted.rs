//! A service that plays prepared events, and a server in front of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use relight_protocol::{
    ChoiceFinished, ChoiceIndex, Delta, Fault, FinishReason, ModelCard, Request, RequestId,
    TokenId, TokenLogprob, Usage,
};
use relight_supervisor::{
    FaultRecord, Health, QuarantinedRequest, RequestFailure, Snapshot, Status, StreamEvent,
};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::{EventStream, Lifting, ServerConfig, Service, Submitting};

/// Longest that a test waits for anything; only a failing test ever waits so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What a stream does next.
#[derive(Debug)]
pub(super) enum Step {
    Event(StreamEvent),
    /// Nothing, until the test opens the gate.
    Gate(oneshot::Receiver<()>),
    /// Nothing, for ever.
    Hang,
    Panic,
    /// This event again and again.
    Forever(StreamEvent),
}

/// The events of one submission, or why it is refused.
pub(super) type Script = Result<Vec<Step>, RequestFailure>;

/// Counts of what became of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) submitted: usize,
    /// Dropped before their last event.
    pub(super) cancelled: usize,
}

#[derive(Debug)]
pub(super) struct Scripted {
    scripts: Mutex<VecDeque<Script>>,
    pub(super) requests: Mutex<Vec<Request>>,
    pub(super) health: Mutex<Health>,
    pub(super) quarantined: Mutex<Vec<QuarantinedRequest>>,
    ends: watch::Sender<Ends>,
}

impl Scripted {
    pub(super) fn push(&self, script: Script) {
        self.scripts.lock().unwrap().push_back(script);
    }

    /// Waits until streams have ended as `wanted` says.
    pub(super) async fn until(&self, wanted: impl FnMut(&Ends) -> bool) {
        let mut ends = self.ends.subscribe();
        let reached = tokio::time::timeout(PATIENCE, ends.wait_for(wanted)).await;
        drop(
            reached
                .expect("the streams did not end as they should")
                .unwrap(),
        );
    }
}

#[derive(Clone)]
struct Front(Arc<Scripted>);

impl Service for Front {
    fn submit(&self, request: Request) -> Submitting<'_> {
        self.0.requests.lock().unwrap().push(request);
        let script = self.0.scripts.lock().unwrap().pop_front();
        let ends = self.0.ends.clone();
        Box::pin(async move {
            let steps = script.unwrap_or_else(|| Ok(hello()))?;
            ends.send_modify(|ends| ends.submitted += 1);
            let steps = VecDeque::from(steps);
            let is_over = false;
            Ok(Box::new(ScriptedStream {
                steps,
                is_over,
                ends,
            }) as Box<dyn EventStream>)
        })
    }

    fn health(&self) -> Health {
        self.0.health.lock().unwrap().clone()
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }

    fn model_card(&self) -> Option<Arc<ModelCard>> {
        self.health().card
    }

    fn faults(&self) -> Arc<[Arc<FaultRecord>]> {
        Arc::default()
    }

    fn quarantined(&self) -> Vec<QuarantinedRequest> {
        self.0.quarantined.lock().unwrap().clone()
    }

    fn lift(&self, fingerprint: Option<u64>) -> Lifting<'_> {
        let mut quarantined = self.0.quarantined.lock().unwrap();
        let before = quarantined.len();
        quarantined.retain(|request| fingerprint.is_some_and(|one| one != request.fingerprint));
        let lifted = before - quarantined.len();
        Box::pin(async move { lifted })
    }

    #[cfg(feature = "fault-injection")]
    fn inject(&self, _injection: relight_protocol::injection::Injection) -> crate::Ordering<'_> {
        Box::pin(async { false })
    }
}

struct ScriptedStream {
    steps: VecDeque<Step>,
    is_over: bool,
    ends: watch::Sender<Ends>,
}

impl EventStream for ScriptedStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        if let Some(Step::Gate(gate)) = self.steps.front_mut() {
            if Pin::new(gate).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.steps.pop_front();
        }
        if let Some(Step::Forever(event)) = self.steps.front() {
            return Poll::Ready(Some(event.clone()));
        }
        let event = match self.steps.pop_front() {
            Some(Step::Event(event)) => Some(event),
            Some(Step::Panic) => panic!("as the script says"),
            None => None,
            Some(Step::Hang | Step::Gate(_) | Step::Forever(_)) => {
                self.steps.push_front(Step::Hang);
                return Poll::Pending;
            }
        };
        self.is_over = event.as_ref().is_none_or(StreamEvent::is_last);
        Poll::Ready(event)
    }
}

impl Drop for ScriptedStream {
    fn drop(&mut self) {
        if !self.is_over {
            self.ends.send_modify(|ends| ends.cancelled += 1);
        }
    }
}

/// A running server; dropping it ends all its tasks.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) service: Arc<Scripted>,
    shutdown: Option<oneshot::Sender<()>>,
    task: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(config: ServerConfig) -> Self {
        let service = Arc::new(Scripted {
            scripts: Mutex::default(),
            requests: Mutex::default(),
            quarantined: Mutex::default(),
            health: Mutex::new(Health {
                status: Status::Ready,
                card: Some(Arc::new(card())),
                ..Health::default()
            }),
            ends: watch::Sender::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, until) = oneshot::channel();
        let mut task = JoinSet::new();
        let until = async { drop(until.await) };
        task.spawn(crate::serve(
            listener,
            Front(Arc::clone(&service)),
            config,
            until,
        ));
        let shutdown = Some(shutdown);
        Self {
            address,
            service,
            shutdown,
            task,
        }
    }

    pub(super) async fn default() -> Self {
        Self::start(ServerConfig::default()).await
    }

    /// Signals the shutdown.
    pub(super) fn begin_shutdown(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    /// Waits for the server's end.
    pub(super) async fn ended(&mut self) {
        let ended = tokio::time::timeout(PATIENCE, self.task.join_next()).await;
        ended.expect("the server did not end").unwrap().unwrap();
    }
}

fn card() -> ModelCard {
    ModelCard {
        name: "Tiny Test".to_owned(),
        architecture: "llama".to_owned(),
        quantization: "Q4_1".to_owned(),
        fingerprint: 0xfeed,
        parameters: 1_000,
        vocabulary: 256,
        context_tokens: 2_048,
        context_tokens_trained: 4_096,
        slots: 4,
        pages: 128,
        page_bytes: 65_536,
        weights_bytes: 9_000,
        threads: 2,
        kernels: "avx2".to_owned(),
        speculation: relight_protocol::Speculation::Off,
        kv_type: relight_protocol::KvType::F16,
        has_chat_template: true,
        load_ms: 12,
    }
}

pub(super) fn accepted() -> Step {
    Step::Event(StreamEvent::Accepted {
        prompt_tokens: 3,
        prompt_text: None,
    })
}

pub(super) fn delta(choice: u16, token_index: u32, text: &str) -> Step {
    delta_with(choice, token_index, text, Vec::new())
}

pub(super) fn delta_with(
    choice: u16,
    token_index: u32,
    text: &str,
    logprobs: Vec<TokenLogprob>,
) -> Step {
    Step::Event(StreamEvent::Delta(Delta {
        id: RequestId(1),
        choice: ChoiceIndex(choice),
        token_index,
        token: TokenId(token_index),
        text_offset: 0,
        text: text.to_owned(),
        logprobs,
    }))
}

pub(super) fn choice_finished(choice: u16, reason: FinishReason, count: u32, text: &str) -> Step {
    Step::Event(StreamEvent::ChoiceFinished(ChoiceFinished {
        id: RequestId(1),
        choice: ChoiceIndex(choice),
        reason,
        token_count: count,
        text_offset: 0,
        text: text.to_owned(),
    }))
}

pub(super) fn finished(completion_tokens: u32) -> Step {
    let usage = Usage {
        prompt_tokens: 3,
        cached_tokens: 1,
        completion_tokens,
    };
    Step::Event(StreamEvent::Finished(usage))
}

pub(super) fn failed(fault: Fault) -> Step {
    Step::Event(StreamEvent::Failed(fault.into()))
}

pub(super) fn logprob(token: u32, logprob: f32, text: &str) -> TokenLogprob {
    TokenLogprob {
        token: TokenId(token),
        logprob,
        bytes: text.as_bytes().to_vec(),
    }
}

/// "Hello, world" in three tokens, the last of which is withheld to the end.
pub(super) fn hello() -> Vec<Step> {
    vec![
        accepted(),
        delta(0, 0, "Hello"),
        delta(0, 1, ", w\u{f6}"),
        delta(0, 2, ""),
        choice_finished(0, FinishReason::Stop, 3, "rld"),
        finished(3),
    ]
}
