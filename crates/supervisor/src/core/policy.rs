//! What the supervisor makes of a fault that an engine reports for one request. The fault
//! itself goes to the client as it is; what status that gets is the server's policy.

#![deny(clippy::wildcard_enum_match_arm)]

use relight_protocol::Fault;

/// What a fault means to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// Its name in metrics.
    pub(crate) label: &'static str,
    /// Whether it tells of trouble on our side, so that health must show it.
    pub(crate) degrades: bool,
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
    Meaning { label, degrades }
}
