//! Where faults on order come in, and where they strike in the front. Without the feature
//! `fault-injection` nothing here does anything, and there is no such endpoint.

#[cfg(feature = "fault-injection")]
mod armed;
#[cfg(feature = "fault-injection")]
pub(crate) use armed::{add_route, handler, stream};

#[cfg(not(feature = "fault-injection"))]
mod absent;
#[cfg(not(feature = "fault-injection"))]
pub(crate) use absent::{add_route, handler, stream};
