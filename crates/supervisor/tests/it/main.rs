//! The supervisor against engines that are not to be trusted: simulated ones from a seed,
//! and real processes that really die.

#[cfg(test)]
mod process;
#[cfg(test)]
mod scripted_engine;
#[cfg(test)]
mod scripted_process;
#[cfg(test)]
mod simulation;
