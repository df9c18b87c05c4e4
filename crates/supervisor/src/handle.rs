//! What the rest of the front holds: start a supervisor, submit requests, ask how it is.
//!
//! Answers about health come from the last report that the supervisor published, so they
//! come at once whatever the engine is doing; a report that has grown old says itself that
//! the supervisor is stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use relight_protocol::{Fault, ModelCard, Overload, Request, RequestId, limits};
use tokio::sync::{mpsc, oneshot, watch};

use crate::arenas::Arenas;
use crate::blame::{Fingerprint, Sentence};
use crate::clock::now;
use crate::config::{StartError, SupervisorConfig};
use crate::faults::{FaultId, FaultRecord};
use crate::health::{Health, Snapshot, Status};
use crate::shell;
use crate::stream::{RequestFailure, RequestStream, StreamSender};

/// From clients' tasks to the supervisor.
#[derive(Debug)]
pub(crate) enum Message {
    Submit(Box<Submission>),
    Cancel { id: RequestId },
}

/// A request on its way into the ledger.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) request: Box<Request>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) stream: StreamSender,
    pub(crate) reply: oneshot::Sender<Result<(), RequestFailure>>,
}

/// From the handle's owner to the supervisor, past any queue.
#[derive(Debug)]
pub(crate) enum Control {
    Shutdown {
        drain: Duration,
        reply: oneshot::Sender<DrainReport>,
    },
    #[cfg(feature = "fault-injection")]
    Inject {
        injection: relight_protocol::injection::Injection,
        reply: oneshot::Sender<()>,
    },
    /// Ends one quarantine, or all.
    Lift {
        fingerprint: Option<u64>,
        reply: oneshot::Sender<usize>,
    },
}

/// What the supervisor published last.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) health: Health,
    pub(crate) snapshot: Snapshot,
    pub(crate) faults: Arc<[Arc<FaultRecord>]>,
    pub(crate) sentences: Arc<[Sentence]>,
    pub(crate) published: Instant,
    /// The same on the core's clock.
    pub(crate) published_ms: u64,
    /// Once an engine is of no use any more: why. Waiting for readiness ends then.
    pub(crate) hopeless: Option<Fault>,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Requests that did not finish in time and were failed.
    pub failed: usize,
    /// Whether nothing was cut short and the engine went by itself.
    pub clean: bool,
}

/// A request that is refused for a while, whoever sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantinedRequest {
    /// Of the request without its seed; names it for `Handle::lift`.
    pub fingerprint: u64,
    pub left: Duration,
    /// The record of the verdict, which may be forgotten by now.
    pub fault_id: FaultId,
}

/// The way to start one.
#[derive(Debug)]
pub struct Supervisor;

impl Supervisor {
    /// Creates the arenas, starts the supervisor's thread, and has it start the first engine.
    /// Does not wait for the model: see `Handle::wait_ready`.
    ///
    /// # Errors
    /// If the memory files or the thread cannot be had.
    pub fn start(config: SupervisorConfig) -> Result<(Handle, SupervisorThread), StartError> {
        let bounds = config.bounds.clamped();
        let arenas = Arenas::create()?;
        let (inbox, messages) = mpsc::channel(limits::SUPERVISOR_INBOX_MAX);
        let (control, controls) = mpsc::channel(4);
        let (report, reports) = watch::channel(Report {
            health: Health::default(),
            snapshot: Snapshot::default(),
            faults: Arc::default(),
            sentences: Arc::default(),
            published: now(),
            published_ms: 0,
            hopeless: None,
        });
        let inlets = shell::Inlets { messages, controls };
        let thread = shell::start(
            SupervisorConfig { bounds, ..config },
            arenas,
            inlets,
            report,
        )
        .map_err(StartError::Thread)?;
        let handle = Handle {
            ids: Arc::new(AtomicU64::new(1)),
            inbox,
            control,
            reports,
            reader_events_max: bounds.reader_events_max,
        };
        Ok((handle, SupervisorThread { thread }))
    }
}

/// The thread that owns the engine. It ends after `Handle::shutdown`.
#[derive(Debug)]
pub struct SupervisorThread {
    thread: JoinHandle<()>,
}

impl SupervisorThread {
    /// Waits for the thread to end; false if it panicked. Blocks: not for async tasks.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}

/// A cheap, cloneable way to the supervisor.
#[derive(Clone, Debug)]
pub struct Handle {
    ids: Arc<AtomicU64>,
    inbox: mpsc::Sender<Message>,
    control: mpsc::Sender<Control>,
    reports: watch::Receiver<Report>,
    reader_events_max: usize,
}

impl Handle {
    /// Hands a request to the supervisor. `Ok` means that it is in the ledger; the stream
    /// then ends in exactly one `Finished` or `Failed`. Dropping the returned future, or the
    /// stream, cancels the request.
    ///
    /// # Errors
    /// The fault for which the request was refused; no engine has seen it then.
    pub async fn submit(&self, request: Request) -> Result<RequestStream, RequestFailure> {
        let fingerprint = Fingerprint::of(&request)?;
        let id = RequestId(self.ids.fetch_add(1, Ordering::Relaxed));
        // Both places are taken before anything is sent, so that a cancel always gets through.
        let submit = self.reserve()?;
        let cancel = self.reserve()?;
        let (stream, events) =
            StreamSender::channel(self.reader_events_max).ok_or_else(|| self.queue_full())?;
        let requested = RequestStream::new(id, events, cancel);
        let (reply, admitted) = oneshot::channel();
        submit.send(Message::Submit(Box::new(Submission {
            id,
            request: Box::new(request),
            fingerprint,
            stream,
            reply,
        })));
        match admitted.await {
            Ok(Ok(())) => Ok(requested),
            Ok(Err(failure)) => Err(failure),
            Err(_supervisor_gone) => Err(Fault::EngineUnavailable.into()),
        }
    }

    fn reserve(&self) -> Result<mpsc::OwnedPermit<Message>, Fault> {
        self.inbox
            .clone()
            .try_reserve_owned()
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => self.queue_full(),
                mpsc::error::TrySendError::Closed(_) => Fault::EngineUnavailable,
            })
    }

    fn queue_full(&self) -> Fault {
        let retry_after_s = self.reports.borrow().health.retry_after_s;
        Fault::Overloaded {
            resource: Overload::QueueFull,
            retry_after_s: retry_after_s
                .clamp(limits::RETRY_AFTER_S_MIN, limits::RETRY_AFTER_S_MAX),
        }
    }

    /// The truth, as of now.
    #[must_use]
    pub fn health(&self) -> Health {
        let (mut health, published) = {
            let report = self.reports.borrow();
            (report.health.clone(), report.published)
        };
        let age = now().saturating_duration_since(published);
        if self.reports.has_changed().is_err() {
            health.status = Status::Stopped;
        } else if age > REPORT_AGE_MAX {
            health.status = Status::Failed;
            health.last_fault = Some(("the supervisor does not respond".into(), age));
        }
        health.last_generation_age = health.last_generation_age.map(|then| then + age);
        health
    }

    /// Raw data for metrics, at most a tick old.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.reports.borrow().snapshot.clone()
    }

    /// The newest faults, oldest first.
    #[must_use]
    pub fn faults(&self) -> Arc<[Arc<FaultRecord>]> {
        Arc::clone(&self.reports.borrow().faults)
    }

    /// Requests that are refused now because they have ended engines.
    #[must_use]
    pub fn quarantined(&self) -> Vec<QuarantinedRequest> {
        let (sentences, published, published_ms) = {
            let report = self.reports.borrow();
            let sentences = Arc::clone(&report.sentences);
            (sentences, report.published, report.published_ms)
        };
        let age = now().saturating_duration_since(published);
        let request = |sentence: &Sentence| QuarantinedRequest {
            fingerprint: sentence.hash,
            left: Duration::from_millis(sentence.until_ms.saturating_sub(published_ms))
                .saturating_sub(age),
            fault_id: sentence.fault_id,
        };
        let mut requests: Vec<_> = sentences.iter().map(request).collect();
        requests.retain(|request| !request.left.is_zero());
        requests
    }

    /// Ends the quarantine of one fingerprint, or of all with `None`. How many that were.
    pub async fn lift(&self, fingerprint: Option<u64>) -> usize {
        let (reply, lifted) = oneshot::channel();
        match self
            .control
            .send(Control::Lift { fingerprint, reply })
            .await
        {
            Ok(()) => lifted.await.unwrap_or(0),
            Err(_supervisor_gone) => 0,
        }
    }

    /// The model that is served, or was served last; `None` before the first load.
    #[must_use]
    pub fn model_card(&self) -> Option<Arc<ModelCard>> {
        self.reports.borrow().health.card.clone()
    }

    /// Waits for an engine that is ready.
    ///
    /// # Errors
    /// `ModelInvalid` if the model cannot be loaded, `EngineUnavailable` if engines died too
    /// often or the supervisor is gone.
    pub async fn wait_ready(&self) -> Result<Arc<ModelCard>, Fault> {
        let mut reports = self.reports.clone();
        let settled =
            |report: &Report| report.health.status.is_ready() || report.hopeless.is_some();
        let report = reports
            .wait_for(settled)
            .await
            .map_err(|_supervisor_gone| Fault::EngineUnavailable)?;
        match (&report.hopeless, &report.health.card) {
            (Some(fault), _) => Err(fault.clone()),
            (None, Some(card)) => Ok(Arc::clone(card)),
            (None, None) => Err(Fault::EngineUnavailable),
        }
    }

    /// Waits for the supervisor's end, whatever its reason.
    pub async fn stopped(&self) {
        let mut reports = self.reports.clone();
        while reports.changed().await.is_ok() {}
    }

    /// Orders a fault in the engine; what is submitted afterwards meets it. False if the
    /// supervisor is gone.
    #[cfg(feature = "fault-injection")]
    pub async fn inject(&self, injection: relight_protocol::injection::Injection) -> bool {
        let (reply, taken) = oneshot::channel();
        let order = Control::Inject { injection, reply };
        self.control.send(order).await.is_ok() && taken.await.is_ok()
    }

    /// Refuses new requests, fails queued ones, lets running ones finish for at most `drain`,
    /// fails the rest, and ends the engine and the supervisor. Later calls join the first.
    pub async fn shutdown(&self, drain: Duration) -> DrainReport {
        let gone = DrainReport {
            failed: 0,
            clean: false,
        };
        let (reply, report) = oneshot::channel();
        match self.control.send(Control::Shutdown { drain, reply }).await {
            Ok(()) => report.await.unwrap_or(gone),
            Err(_supervisor_gone) => gone,
        }
    }
}

/// A report older than this means that the supervisor itself hangs: it publishes every tick.
const REPORT_AGE_MAX: Duration = Duration::from_millis(limits::SUPERVISOR_TICK_MS * 20);
