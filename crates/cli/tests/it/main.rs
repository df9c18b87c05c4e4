//! The real program: real processes, real sockets, real signals, on random models of a few
//! hundred kilobytes. One binary, so that it links once.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod http;
#[cfg(test)]
mod life;
#[cfg(test)]
#[cfg(feature = "fault-injection")]
mod matrix;
#[cfg(test)]
mod models;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod server;
