//! Models as pure functions: from text to tokens and back, and from tokens to logits over
//! weights and a view of the key/value pages. No I/O, no clock, no threads of its own.

pub mod arch;
pub mod forward;
pub mod reference;
pub mod sampler;
pub mod spec;
pub mod text;
pub mod weights;

#[cfg(test)]
mod draft;
#[cfg(test)]
mod recorded;
