//! What the supervisor tells an engine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{ChoiceIndex, Request, RequestId, TokenId};

/// Instruction set tier of the CPU kernels. All tiers give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Isa {
    Scalar,
    Avx2,
    AvxVnni,
    Avx512,
    Neon,
    NeonDot,
}

/// How tokens are guessed that may come next, to be computed beside the last one. No way
/// changes what is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Speculation {
    #[default]
    Off,
    /// By what followed the same tokens before, in prompt or answer.
    Ngram,
}

impl Speculation {
    /// Its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Ngram => "ngram",
        }
    }
}

/// What keys and values are kept as: each an arithmetic of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KvType {
    #[default]
    F16,
    Bf16,
    /// Bytes, with a scale for each token and head.
    Q8_0,
}

impl KvType {
    pub const ALL: [Self; 3] = [Self::F16, Self::Bf16, Self::Q8_0];

    /// Its name on the command line, in the card and in fingerprints.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }
}

/// Memory files that outlive the engine: descriptor numbers in the *supervisor's* process,
/// opened by the engine as `/proc/<parent>/fd/<n>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaFds {
    pub weights: i32,
    pub kv: i32,
    /// See [`crate::recorder`].
    pub recorder: i32,
}

/// Everything an engine needs to load its model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    pub model_path: PathBuf,
    /// `None`: private anonymous memory, for an engine without a supervisor.
    pub arenas: Option<ArenaFds>,
    /// Context per sequence; `None` is the model's own, bounded by memory.
    pub context_tokens: Option<u32>,
    /// Sequences that decode at once.
    pub slots: u16,
    /// Pages in the pool; `None` is enough for every slot at full context, bounded by memory.
    pub pages: Option<u32>,
    /// Worker threads; `None` is one per core.
    pub threads: Option<u16>,
    /// Rows of the largest step (prefill chunk plus decodes).
    pub batch_tokens: u32,
    pub speculation: Speculation,
    pub kv_type: KvType,
    /// `None` is the best that the CPU has.
    pub isa: Option<Isa>,
    /// Replaces the template in the model file.
    pub chat_template: Option<String>,
}

/// How far one choice had come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceProgress {
    pub choice: ChoiceIndex,
    /// Committed tokens in order, index 0 first.
    pub tokens: Vec<TokenId>,
    /// A finished choice is not run again; it only counts in the usage.
    pub finished: bool,
}

/// The recoverable state of a request, together with the request itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// As `Accepted` reported them: a template may render differently later.
    pub prompt_tokens: Vec<TokenId>,
    pub choices: Vec<ChoiceProgress>,
}

/// Supervisor to engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// The first command, once.
    Load(EngineConfig),
    /// Start a request, or go on with one that another engine had begun.
    Submit {
        id: RequestId,
        request: Box<Request>,
        resume: Option<Resume>,
    },
    /// Stop working on a request. No-op if the engine does not have it.
    Cancel { id: RequestId },
    /// Finish the frame being written and exit.
    Shutdown,
    /// Let something go wrong. Also before `Load`.
    #[cfg(feature = "fault-injection")]
    Inject(crate::injection::Injection),
}
