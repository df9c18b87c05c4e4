//! What the supervisor makes of a fault that an engine reports for one request. The fault
//! itself goes to the client as it is; what status that gets is the server's policy.

#![deny(clippy::wildcard_enum_match_arm)]

use relight_protocol::{Fault, Phase};

/// What a fault means to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// Its name in metrics.
    pub(crate) label: &'static str,
    /// Whether it tells of trouble on our side, so that health must show it.
    pub(crate) degrades: bool,
    /// Where in the request's own work it arose, if it tells.
    pub(crate) phase: Option<Phase>,
}

pub(crate) fn meaning_of(fault: &Fault) -> Meaning {
    let (label, degrades) = match fault {
        Fault::InvalidRequest { .. } => ("invalid_request", false),
        Fault::ContextFull { .. } => ("context_full", false),
        Fault::Overloaded { .. } => ("overloaded", false),
        Fault::Cancelled => ("cancelled", false),
        Fault::DeadlineExceeded { .. } => ("deadline_exceeded", false),
        Fault::ModelInvalid { .. } => ("model_invalid", false),
        Fault::EngineUnavailable => ("engine_unavailable", false),
        Fault::EngineCrashed => ("engine_crashed", false),
        Fault::Quarantined => ("quarantined", false),
        Fault::EngineStalled => ("engine_stalled", true),
        Fault::NonFiniteLogits => ("non_finite_logits", true),
        Fault::OutOfMemory => ("out_of_memory", true),
        Fault::Internal { .. } => ("internal", true),
    };
    let phase = match fault {
        Fault::Internal { phase } => Some(*phase),
        Fault::NonFiniteLogits => Some(Phase::Sample),
        Fault::OutOfMemory => Some(Phase::Admit),
        Fault::InvalidRequest { .. }
        | Fault::ContextFull { .. }
        | Fault::Overloaded { .. }
        | Fault::Cancelled
        | Fault::DeadlineExceeded { .. }
        | Fault::ModelInvalid { .. }
        | Fault::EngineUnavailable
        | Fault::EngineCrashed
        | Fault::Quarantined
        | Fault::EngineStalled => None,
    };
    Meaning {
        label,
        degrades,
        phase,
    }
}
