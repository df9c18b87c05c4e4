//! The only crate that knows HTTP and the dialects of its clients.
//!
//! ```text
//!   listener ── connections ──> router ── around every handler: name, key, panic boundary
//!                                 │
//!   openai: body ──> canonical requests ──> Service (the supervisor)
//!                                                │
//!   event_body / answer <── generation <── events
//! ```
//!
//! Absent on purpose: anything that knows a model. Prompt text passes through unread.

mod access;
mod app;
mod clock;
mod config;
mod contained;
mod event_body;
mod failure;
mod fault_report;
mod field;
mod generation;
mod health_report;
mod identifier;
mod injected;
mod listener;
mod metrics;
mod model_list;
mod openai;
mod refusal;
mod request_body;
mod router;
mod service;

pub use access::ApiKeys;
pub use config::ServerConfig;
pub use listener::serve;
#[cfg(feature = "fault-injection")]
pub use service::Ordering;
pub use service::{EventStream, Lifting, Service, Submitting};

#[cfg(test)]
mod tests;
