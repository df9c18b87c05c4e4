//! The engine with a real, tiny model: loading, serving over a socket, and the promise that
//! nothing but a sequence's own tokens can change its numbers.

#[cfg(test)]
mod adoption;
#[cfg(test)]
mod client;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod process;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod tiny_file;
#[cfg(test)]
mod trace;
