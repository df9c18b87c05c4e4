//! Nothing is ordered.

use relight_protocol::{Event, Fault, Phase, Request, RequestId};

use crate::backend::BackendError;

#[inline]
pub(crate) fn load() {}

#[inline]
pub(crate) fn meet(_id: RequestId, _request: &Request) {}

#[inline]
pub(crate) fn received() {}

#[inline]
pub(crate) fn private(_phase: Phase, _request: RequestId) -> Result<(), Fault> {
    Ok(())
}

#[inline]
pub(crate) fn shared(_requests: impl Iterator<Item = RequestId>) -> Result<(), BackendError> {
    Ok(())
}

#[inline]
pub(crate) fn confirm(_requests: impl Iterator<Item = RequestId>) {}

#[inline]
pub(crate) fn spoil(
    _logits: &mut [f32],
    _vocabulary: usize,
    _rows: impl Iterator<Item = RequestId>,
) {
}

#[inline]
pub(crate) fn flushed() {}

/// False if the event is not to be sent.
#[inline]
pub(crate) fn outgoing(_event: &Event, _buffer: &mut Vec<u8>) -> bool {
    true
}
