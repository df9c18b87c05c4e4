//! The hidden role of the disposable process.

use std::process::ExitCode;

use crate::logs::Logs;

/// Serves the supervisor on the other end of standard input until it hangs up.
pub(crate) fn engine() -> ExitCode {
    Logs::inherited().start();
    match relight_engine::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{:#}", anyhow::Error::from(error));
            ExitCode::FAILURE
        }
    }
}
