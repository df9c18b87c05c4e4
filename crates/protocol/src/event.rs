//! What an engine tells the supervisor. For every accepted request the events of one choice
//! are, after one `Started` per request: `Delta` with token index 0, 1, 2, ... without gap, then one `ChoiceFinished`; after
//! the last choice one `Finished`. `Rejected` or `Failed` end a request instead, at any
//! point. A cancelled request ends silently.

use serde::{Deserialize, Serialize};

use crate::recorder::Participant;
use crate::{ChoiceIndex, Fault, KvType, RequestId, Speculation, StepCosts, TokenId};

/// What a resumed stream is worth on this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Promise {
    /// It equals the undisturbed one, byte for byte.
    Exact,
    /// Nothing is lost or repeated, but the rest may differ.
    Continuation,
}

/// What is loaded, as clients and the start-up banner see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCard {
    /// `general.name`, or the file's stem.
    pub name: String,
    pub architecture: String,
    /// Quantization in the file's own words, e.g. `Q4_1`.
    pub quantization: String,
    /// Hash of the file's tensors, arithmetic, type of keys and values, and rope settings: equal fingerprints give equal logits.
    pub fingerprint: u128,
    pub parameters: u64,
    pub vocabulary: u32,
    pub context_tokens: u32,
    pub context_tokens_trained: u32,
    pub slots: u16,
    pub pages: u32,
    pub page_bytes: u64,
    pub kv_type: KvType,
    pub weights_bytes: u64,
    pub threads: u16,
    /// Kernel tier in words, e.g. `avx2`; says why if it is the scalar one.
    pub kernels: String,
    pub speculation: Speculation,
    pub has_chat_template: bool,
    /// Milliseconds from `Load` to `Ready`.
    pub load_ms: u64,
}

/// Gauges and counters since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub sequences_running: u32,
    pub sequences_waiting: u32,
    pub pages_used: u32,
    pub pages_cached: u32,
    pub pages_total: u32,
    pub steps_total: u64,
    pub prompt_tokens_total: u64,
    pub cached_tokens_total: u64,
    pub generated_tokens_total: u64,
    /// Tokens that were computed in case they would be drawn next, and those that were.
    pub drafted_tokens_total: u64,
    pub accepted_drafts_total: u64,
    pub preemptions_total: u64,
    pub contained_faults_total: u64,
    /// Audits of pages and slots, made after every fault, and those that found a mistake.
    pub audits_total: u64,
    pub audit_failures_total: u64,
    /// Pages of an earlier engine that were there at the start.
    pub pages_adopted_total: u64,
    /// Of those, pages and notes about pages that turned out to be damaged; they are computed
    /// again.
    pub pages_corrupt_total: u64,
    pub costs: StepCosts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub id: RequestId,
    pub prompt_tokens: Vec<TokenId>,
    /// Only if the request asked for an echo.
    pub prompt_text: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    pub id: RequestId,
    pub fault: Fault,
    /// For the fault's record, never for the client: what panicked where, and the way there.
    /// At most `REPORT_BYTES_MAX` long.
    pub report: Option<String>,
}

/// A request's prompt is about to be computed. Comes once per request and engine, before the
/// first delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub id: RequestId,
    /// Part of the prompt that need not be computed because its pages are there.
    pub cached_tokens: u32,
}

/// What made the shared step unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum LatchCause {
    #[error("the shared step panicked")]
    Panicked,
    #[error("the shared step failed")]
    Failed,
    #[error("no row of the step had finite logits")]
    NonFiniteLogits,
    #[error("pages and slots do not add up")]
    AuditFailed,
}

/// The engine has dropped its generator with every request in it and built a new one on the
/// same weights. What it is given after this is computed anew; what it had is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latched {
    pub cause: LatchCause,
    /// Who took part in the step.
    pub participants: Vec<Participant>,
    /// As in [`Rejected`].
    pub report: Option<String>,
}

/// A token with the natural logarithm of its probability before sampling rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    pub token: TokenId,
    pub logprob: f32,
    /// The token's bytes; not always valid UTF-8.
    pub bytes: Vec<u8>,
}

/// One committed token of one choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    pub id: RequestId,
    pub choice: ChoiceIndex,
    /// Counts from 0 within the choice.
    pub token_index: u32,
    pub token: TokenId,
    /// Bytes of this choice's text sent before this delta.
    pub text_offset: u32,
    /// What this token released: empty while a character or a possible stop string is open.
    pub text: String,
    /// The chosen token first, then the best alternatives; empty if not asked for.
    pub logprobs: Vec<TokenLogprob>,
}

/// Why a choice is complete. Failures are `Fault`s and never one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// End token, stop token or stop string.
    Stop,
    /// Token limit, or the end of the context.
    Length,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceFinished {
    pub id: RequestId,
    pub choice: ChoiceIndex,
    pub reason: FinishReason,
    /// Tokens of this choice; the next token index, had there been one.
    pub token_count: u32,
    pub text_offset: u32,
    /// Text that was still withheld.
    pub text: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt_tokens: u32,
    /// Part of the prompt that was not computed because its pages were there.
    pub cached_tokens: u32,
    /// Over all choices.
    pub completion_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub id: RequestId,
    pub usage: Usage,
}

/// Engine to supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The first event, before the model is loaded.
    Hello {
        protocol_version: u32,
        promise: Promise,
    },
    /// Progress of the load, in bytes of tensors.
    Loading {
        done_bytes: u64,
        total_bytes: u64,
    },
    Ready(Box<ModelCard>),
    /// The model cannot be served; the engine exits after this.
    LoadFailed(Fault),
    Accepted(Accepted),
    Rejected(Rejected),
    Started(Started),
    Delta(Delta),
    ChoiceFinished(ChoiceFinished),
    Finished(Finished),
    /// The request failed after it was accepted.
    Failed(Rejected),
    /// Every request that the engine had must be submitted again.
    Latched(Latched),
    Stats(Stats),
}
