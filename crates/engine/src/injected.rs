//! Where faults on order strike. Without the feature `fault-injection` every function here is
//! empty, and the binary has none of it.

#[cfg(feature = "fault-injection")]
mod armed;
#[cfg(feature = "fault-injection")]
pub(crate) use armed::{
    arm, confirm, flushed, load, meet, outgoing, private, received, shared, spoil,
};

#[cfg(not(feature = "fault-injection"))]
mod absent;
#[cfg(not(feature = "fault-injection"))]
pub(crate) use absent::{confirm, flushed, load, meet, outgoing, private, received, shared, spoil};
