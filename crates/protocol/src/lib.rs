//! What the two processes of Relight agree on: ids, limits, faults, requests, events and
//! the frame codec. No I/O happens here, and nothing in it is particular to one engine: a
//! request names text, chats or token ids, an event carries indexed tokens.
//!
//! ```text
//!   supervisor ── Command ──> engine        one postcard value per frame,
//!   supervisor <── Event ───  engine        see `frame`
//! ```

mod command;
mod costs;
mod event;
mod fault;
pub mod frame;
mod ids;
#[cfg(feature = "fault-injection")]
pub mod injection;
pub mod limits;
pub mod recorder;
mod request;

pub use command::{
    ArenaFds, ChoiceProgress, Command, EngineConfig, Isa, KvType, Resume, Speculation,
};
pub use costs::StepCosts;
pub use event::{
    Accepted, ChoiceFinished, Delta, Event, FinishReason, Finished, LatchCause, Latched, ModelCard,
    Promise, Rejected, Started, Stats, TokenLogprob, Usage,
};
pub use fault::{Fault, Overload, Phase};
pub use frame::{FrameDecoder, FrameError};
pub use ids::{ChoiceIndex, RequestId, TokenId};
pub use request::{Chat, Prompt, Request, Sampling, StopRules};

/// Version of everything in this crate that crosses the pipe. The engine states it in its
/// hello; a supervisor that speaks another one refuses the engine.
pub const PROTOCOL_VERSION: u32 = 5;
