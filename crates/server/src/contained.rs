//! A boundary around a request's handler: a panic inside is that request's own failure.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The handler panicked. What and where is in the log, by the process's panic hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Runs `future` to its end, or to its first panic.
pub(crate) async fn contained<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        // Unwind safe: a future that panicked is dropped and never polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_panic) => Poll::Ready(Err(Panicked)),
        }
    })
    .await
}
