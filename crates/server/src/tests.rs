//! The whole server on a real loopback socket, in front of a scripted service.

mod answers;
mod client;
mod connections;
mod failures;
mod scripted;
mod streams;
