//! The events of one request, from the supervisor to the client's task.
//!
//! The buffer is bounded. A reader that falls behind by more has its request failed; it
//! never holds up the supervisor or another reader. One place in the buffer is kept for the
//! event that ends the stream, so that a reader always learns how its request ended.

use relight_protocol::{ChoiceFinished, Delta, Fault, RequestId, Usage};
use tokio::sync::mpsc;

use crate::faults::FaultId;
use crate::handle::Message;

/// Why a request has no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct RequestFailure {
    pub fault: Fault,
    /// The fault was proven to be the request's own doing: sent again, it would fail again.
    pub guilty: bool,
    /// The record that tells more, if there is one.
    pub fault_id: Option<FaultId>,
}

impl From<Fault> for RequestFailure {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            guilty: false,
            fault_id: None,
        }
    }
}

impl RequestFailure {
    /// A failure that a record tells more about.
    #[must_use]
    pub fn recorded(fault: Fault, fault_id: FaultId) -> Self {
        Self {
            fault,
            guilty: false,
            fault_id: Some(fault_id),
        }
    }
}

/// What a client's task learns about its request.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// Checked, rendered and tokenized; a good moment to send headers. Always the first event
    /// of a request that does not fail.
    Accepted {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Only if the request asked for an echo.
        prompt_text: Option<String>,
    },
    /// One committed token; its text may be empty.
    Delta(Delta),
    /// One of the choices is complete.
    ChoiceFinished(ChoiceFinished),
    /// The request is complete. Last event.
    Finished(Usage),
    /// The request failed. Last event.
    Failed(RequestFailure),
}

impl StreamEvent {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Failed(_))
    }
}

/// The events of one request. Dropping it before its last event cancels the request.
#[derive(Debug)]
pub struct RequestStream {
    id: RequestId,
    events: mpsc::Receiver<StreamEvent>,
    /// Present until the last event was read or the cancel was sent: this is what makes a
    /// cancel happen once at most.
    cancel: Option<mpsc::OwnedPermit<Message>>,
}

impl RequestStream {
    pub(crate) fn new(
        id: RequestId,
        events: mpsc::Receiver<StreamEvent>,
        cancel: mpsc::OwnedPermit<Message>,
    ) -> Self {
        Self {
            id,
            events,
            cancel: Some(cancel),
        }
    }

    /// The request's id in logs.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next event; `None` after the last one. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        self.cancel.as_ref()?;
        let event = self.events.recv().await;
        Some(self.note(event))
    }

    /// The next event if it is there already, to write several at once.
    pub fn try_next(&mut self) -> Option<StreamEvent> {
        self.cancel.as_ref()?;
        match self.events.try_recv() {
            Ok(event) => Some(self.note(Some(event))),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.note(None)),
        }
    }

    /// A stream whose sender went away without a last event has lost its supervisor: the
    /// caller must not take that for a clean end.
    fn note(&mut self, event: Option<StreamEvent>) -> StreamEvent {
        let event = event.unwrap_or_else(|| StreamEvent::Failed(Fault::EngineUnavailable.into()));
        if event.is_last() {
            self.cancel = None;
        }
        event
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        if let Some(permit) = self.cancel.take() {
            permit.send(Message::Cancel { id: self.id });
        }
    }
}

/// The supervisor's end of a `RequestStream`.
#[derive(Debug)]
pub(crate) struct StreamSender {
    events: mpsc::Sender<StreamEvent>,
    last: mpsc::OwnedPermit<StreamEvent>,
    /// The reader has missed an event, so it may see none but the last.
    has_gap: bool,
}

/// The reader's buffer is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReaderTooSlow;

impl StreamSender {
    /// A sender and the receiver of at most `events_max` events and one last event.
    pub(crate) fn channel(events_max: usize) -> Option<(Self, mpsc::Receiver<StreamEvent>)> {
        let (events, receiver) = mpsc::channel(events_max.saturating_add(1));
        let last = events.clone().try_reserve_owned().ok()?;
        let sender = Self {
            events,
            last,
            has_gap: false,
        };
        Some((sender, receiver))
    }

    /// Buffers an event that is not the last. A reader that is gone counts as fast.
    ///
    /// # Errors
    /// Once if the buffer is full. The event and those after it are dropped.
    pub(crate) fn push(&mut self, event: StreamEvent) -> Result<(), ReaderTooSlow> {
        if self.has_gap {
            return Ok(());
        }
        match self.events.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.has_gap = true;
                Err(ReaderTooSlow)
            }
        }
    }

    /// Buffers the last event; there is always room.
    pub(crate) fn finish(self, event: StreamEvent) {
        self.last.send(event);
    }
}

#[cfg(test)]
mod tests;
