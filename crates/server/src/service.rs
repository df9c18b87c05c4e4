//! The seam between HTTP and whatever answers requests. The server knows nothing of
//! supervisors beyond this; its tests put a scripted service here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use relight_protocol::{ModelCard, Request};
use relight_supervisor::{Handle, Health, RequestFailure, RequestStream, Snapshot, StreamEvent};

/// The events of one submitted request. Dropping it cancels the request.
pub trait EventStream: Send {
    /// The next event, `None` after the last one.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>>;
}

/// A request on its way to being taken. Dropping it withdraws the request.
pub type Submitting<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn EventStream>, RequestFailure>> + Send + 'a>>;

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
    /// Orders a fault. False if nobody can take the order.
    #[cfg(feature = "fault-injection")]
    fn inject(&self, _injection: relight_protocol::injection::Injection) -> bool {
        false
    }
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

    #[cfg(feature = "fault-injection")]
    fn inject(&self, injection: relight_protocol::injection::Injection) -> bool {
        Self::inject(self, injection)
    }
}
