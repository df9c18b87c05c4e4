//! Connections: accepting, bounding and closing them. Every connection is a task of one
//! set, so none outlives the server.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use relight_protocol::limits::{ACCEPT_RETRY_MS, READER_STALL_MS_MAX};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::config::ServerConfig;
use crate::metrics::OpenConnection;
use crate::router::router;
use crate::service::Service;

/// The whole answer to a connection above the bound.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 138\r\n\r\n\
    {\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\",\"param\":null,\
    \"code\":\"overloaded\",\"retryable\":true},\"detail\":\"overloaded\"}";

/// Serves HTTP on `listener` until `shutdown` resolves, then lets open requests finish for
/// at most `config.shutdown_timeout` and cuts the rest, whose clients see a broken body.
pub async fn serve(
    listener: TcpListener,
    service: impl Service + 'static,
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) {
    let drain = config.shutdown_timeout;
    let app = Arc::new(App::new(Arc::new(service), config));
    let (closing, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    accept_until(&listener, &app, &closing, &mut connections, shutdown).await;
    drop(listener);
    closing.send_replace(true);
    let all_closed = async {
        while let Some(ended) = connections.join_next().await {
            note_end(ended);
        }
    };
    if timeout(drain, all_closed).await.is_err() {
        let cut = connections.len();
        tracing::warn!(
            cut,
            "connections were cut at the end of the shutdown time-out"
        );
    }
    connections.shutdown().await;
}

async fn accept_until(
    listener: &TcpListener,
    app: &Arc<App>,
    closing: &watch::Sender<bool>,
    connections: &mut JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) {
    let router = router(Arc::clone(app));
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = shutdown.as_mut() => return,
            Some(ended) = connections.join_next() => note_end(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) if connections.len() < app.config.connections_max => {
                    connections.spawn(connection(Arc::clone(app), router.clone(), stream, closing.subscribe()));
                }
                Ok((stream, _peer)) => refuse(app, &stream),
                Err(error) => {
                    // Out of file descriptors, as a rule; accepting at once would spin.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                }
            },
        }
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}

/// Says that there are too many connections, as far as the socket takes it at once.
fn refuse(app: &App, stream: &TcpStream) {
    app.metrics.connections_refused.inc();
    if let Err(error) = stream.try_write(TOO_MANY_CONNECTIONS) {
        tracing::debug!(%error, "a refused connection could not be told");
    }
}

async fn connection(
    app: Arc<App>,
    router: Router,
    stream: TcpStream,
    mut closing: watch::Receiver<bool>,
) {
    let _open = OpenConnection::new(&app.metrics);
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%error, "a socket option could not be set");
    }
    let service = TowerToHyperService::new(router);
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(app.config.header_read)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = until_closing(&mut closing) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn until_closing(closing: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end as well.
    drop(closing.wait_for(|is_closing| *is_closing).await);
}

/// Sends events without delay, and has the kernel cut a client that stops reading.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(stream, READER_STALL_MS_MAX)?;
    Ok(())
}
