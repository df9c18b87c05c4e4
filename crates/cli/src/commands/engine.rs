//! `relight engine`: the disposable process, driven over standard input.

use std::process::ExitCode;

/// Serves the supervisor on the other end of standard input until it hangs up.
pub(crate) fn run() -> ExitCode {
    match relight_engine::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("engine: {error}");
            ExitCode::FAILURE
        }
    }
}
