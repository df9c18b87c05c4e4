//! What an engine can get wrong in its events.

use relight_protocol::{ChoiceIndex, RequestId};

/// A claim that contradicts the record or the order of the protocol. For logs only: no
/// client's request fails because of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("protocol version {found}, ours is {expected}")]
    WrongVersion { expected: u32, found: u32 },
    #[error("{event} out of turn")]
    OutOfTurn { event: &'static str },
    #[error("event for {id}, which this engine was never given")]
    WrongId { id: RequestId },
    #[error("{id} has no choice {index}")]
    NoSuchChoice { id: RequestId, index: u16 },
    #[error("event for {id} before it was accepted")]
    NotAccepted { id: RequestId },
    #[error("{id} accepted again with a different prompt")]
    DifferentPrompt { id: RequestId },
    #[error("{id} choice {} token {expected} expected, {found} came", choice.0)]
    TokenSkipped {
        id: RequestId,
        choice: ChoiceIndex,
        expected: u32,
        found: u32,
    },
    #[error("{id} choice {} token {index} differs from the one committed", choice.0)]
    DifferentToken {
        id: RequestId,
        choice: ChoiceIndex,
        index: u32,
    },
    #[error("{id} choice {} token {index} is past the limit", choice.0)]
    TooManyTokens {
        id: RequestId,
        choice: ChoiceIndex,
        index: u32,
    },
    #[error("{id} choice {} text at {found}, but {expected} bytes are there", choice.0)]
    TextSkipped {
        id: RequestId,
        choice: ChoiceIndex,
        expected: u32,
        found: u32,
    },
    #[error("{id} choice {} text at {offset} differs from the one sent", choice.0)]
    DifferentText {
        id: RequestId,
        choice: ChoiceIndex,
        offset: u32,
    },
    #[error("{id} choice {} has ended already, in another way", choice.0)]
    AfterEnd { id: RequestId, choice: ChoiceIndex },
    #[error("{id} choice {} ended with {found} tokens, {expected} are committed", choice.0)]
    WrongTokenCount {
        id: RequestId,
        choice: ChoiceIndex,
        expected: u32,
        found: u32,
    },
    #[error("{id} finished while a choice is open")]
    FinishedEarly { id: RequestId },
}
