//! The part of Relight that must not die: it keeps the ledger of requests and committed
//! tokens, owns the engine's life, and gives every client each byte of its answer once,
//! however often the engine dies meanwhile.
//!
//! ```text
//!   Handle ──messages──> supervisor thread ──frames──> engine process
//!     │                    shell: clocks, pipe, child       (disposable)
//!   RequestStream <──────  Core: handle(now, Input), no I/O
//! ```
//!
//! Absent on purpose: HTTP, and anything that knows a model. An engine is whatever speaks
//! `relight_protocol` on its standard input.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the supervisor keeps the engine's arenas in memfds and hands them over through /proc, \
     so it runs on Linux only"
);

mod absentees;
mod arenas;
pub mod blame;
mod clock;
mod config;
pub mod core;
mod engine_process;
mod faults;
mod handle;
mod health;
mod invariant;
mod lanes;
pub mod ledger;
mod oom_counter;
mod restart_budget;
mod shell;
mod stream;

pub use config::{Bounds, EngineCommand, StartError, SupervisorConfig};
pub use faults::{FaultId, FaultKind, FaultRecord, NoFaultId, Timeline};
pub use handle::{DrainReport, Handle, QuarantinedRequest, Supervisor, SupervisorThread};
pub use health::{Health, LoadProgress, Recoveries, Snapshot, Status};
pub use lanes::Lanes;
pub use stream::{RequestFailure, RequestStream, StreamEvent};
