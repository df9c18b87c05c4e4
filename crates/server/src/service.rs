//! The seam between HTTP and whatever answers requests. The server knows nothing of
//! supervisors beyond this; its tests put a scripted service here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use relight_protocol::{ModelCard, Request};
use relight_supervisor::{
    FaultRecord, Handle, Health, QuarantinedRequest, RequestFailure, RequestStream, Snapshot,
    StreamEvent,
};

/// The events of one submitted request. Dropping it cancels the request.
pub trait EventStream: Send {
    /// The next event, `None` after the last one.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>>;
}

/// A request on its way to being taken. Dropping it withdraws the request.
pub type Submitting<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn EventStream>, RequestFailure>> + Send + 'a>>;

/// A quarantine on its way to its end.
pub type Lifting<'a> = Pin<Box<dyn Future<Output = usize> + Send + 'a>>;

/// An order on its way to whoever carries it out.
#[cfg(feature = "fault-injection")]
pub type Ordering<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// What the server needs from behind it.
pub trait Service: Send + Sync {
    /// Hands a request over; a fault is a refusal before any work was done.
    fn submit(&self, request: Request) -> Submitting<'_>;
    /// The truth, as of now.
    fn health(&self) -> Health;
    /// Raw data for metrics.
    fn snapshot(&self) -> Snapshot;
    /// The model that is served, or was last; `None` before the first load.
    fn model_card(&self) -> Option<Arc<ModelCard>>;
    /// The newest faults, oldest first.
    fn faults(&self) -> Arc<[Arc<FaultRecord>]>;
    /// Requests that are refused now because they have ended engines.
    fn quarantined(&self) -> Vec<QuarantinedRequest>;
    /// Lets one fingerprint in again, or all. How many that were.
    fn lift(&self, fingerprint: Option<u64>) -> Lifting<'_>;
    /// Orders a fault. False if nobody can take the order.
    #[cfg(feature = "fault-injection")]
    fn inject(&self, injection: relight_protocol::injection::Injection) -> Ordering<'_>;
}

impl EventStream for RequestStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        pin!(self.next()).poll(cx)
    }
}

impl Service for Handle {
    fn submit(&self, request: Request) -> Submitting<'_> {
        Box::pin(async move {
            let stream = Self::submit(self, request).await?;
            Ok(Box::new(stream) as Box<dyn EventStream>)
        })
    }

    fn health(&self) -> Health {
        Self::health(self)
    }

    fn snapshot(&self) -> Snapshot {
        Self::snapshot(self)
    }

    fn model_card(&self) -> Option<Arc<ModelCard>> {
        Self::model_card(self)
    }

    fn faults(&self) -> Arc<[Arc<FaultRecord>]> {
        Self::faults(self)
    }

    fn quarantined(&self) -> Vec<QuarantinedRequest> {
        Self::quarantined(self)
    }

    fn lift(&self, fingerprint: Option<u64>) -> Lifting<'_> {
        Box::pin(Self::lift(self, fingerprint))
    }

    #[cfg(feature = "fault-injection")]
    fn inject(&self, injection: relight_protocol::injection::Injection) -> Ordering<'_> {
        Box::pin(Self::inject(self, injection))
    }
}
