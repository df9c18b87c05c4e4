//! Why the engine process ends other than by being told to.

use relight_protocol::FrameError;

use crate::core::SuccessionError;
use crate::load::LoadError;

/// Everything that ends the process. None of it loses a request: the supervisor replays
/// them on the next engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the control socket failed")]
    Socket(#[source] std::io::Error),
    #[error("the supervisor sent what is no command")]
    Frame(#[from] FrameError),
    #[error("the supervisor sent a command out of turn: {command}")]
    OutOfTurn { command: &'static str },
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
    #[error("the thread that reads commands panicked")]
    ReaderPanicked,
    #[error("the model could not be loaded")]
    Load(#[from] LoadError),
    #[error("the latched generator could not be replaced")]
    Succession(#[from] SuccessionError),
}
