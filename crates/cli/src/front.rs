//! The front process: a supervisor with its engine, and HTTP around it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{EngineConfig, Fault, ModelCard};
use relight_server::ServerConfig;
use relight_supervisor::{
    Bounds, EngineCommand, Handle, Supervisor, SupervisorConfig, SupervisorThread,
};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::output::Output;

/// Time for answers in flight to reach their clients once the supervisor has ended them.
const FLUSH: Duration = Duration::from_secs(2);

/// How engines are set up.
#[derive(Clone, Debug)]
pub(crate) struct Engines {
    pub(crate) config: EngineConfig,
    /// Set on top of the front's own.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// What `serve` was asked for, resolved.
#[derive(Debug)]
pub(crate) struct FrontOptions {
    pub(crate) engines: Engines,
    pub(crate) bounds: Bounds,
    pub(crate) server: ServerConfig,
    /// Port 0 takes a free one.
    pub(crate) address: SocketAddr,
    /// How long running requests may go on after a signal to stop.
    pub(crate) drain: Duration,
}

/// Serves until SIGINT or SIGTERM. Success means that nothing was cut short.
///
/// # Errors
/// If the address cannot be had, the supervisor cannot start, or the model cannot be loaded.
pub(crate) fn serve(options: FrontOptions, output: Output) -> Result<ExitCode> {
    let runtime = runtime()?;
    // Bound before the model is loaded, so that a taken port shows at once, and clients that
    // come early are told that the model is loading.
    let listener = runtime
        .block_on(TcpListener::bind(options.address))
        .with_context(|| format!("cannot listen on {}", options.address))?;
    let local = listener
        .local_addr()
        .context("the listening socket has no address")?;
    let (handle, thread) = start(options.engines, options.bounds)?;
    let server = ServerConfig {
        shutdown_timeout: FLUSH,
        ..options.server
    };
    let clean = runtime.block_on(run(
        handle,
        listener,
        server,
        options.drain,
        (local, output),
    ));
    // The thread has ended or will: the shutdown above waited for it.
    let joined = thread.join();
    Ok(if clean? && joined {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Cores for each thread of the front, and the most threads. The front moves bytes, the engine
/// computes; on a small machine a second thread would be woken for every token, for nothing.
const CORES_PER_THREAD: usize = 8;
const THREADS_MAX: usize = 4;

/// The runtime of the front.
///
/// # Errors
/// If the system has no threads left.
pub(crate) fn runtime() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / CORES_PER_THREAD).clamp(1, THREADS_MAX))
        .thread_name("front")
        .enable_all()
        .build()
        .context("cannot start the front's threads")
}

/// Starts a supervisor whose engines are this program in its `engine` role.
///
/// # Errors
/// If this program cannot be found again or the supervisor cannot start.
pub(crate) fn start(engines: Engines, bounds: Bounds) -> Result<(Handle, SupervisorThread)> {
    let program = engine_program()?;
    let command = EngineCommand {
        environment: engines.environment,
        // Its path is that of a link in /proc, which tells nobody anything.
        shown_as: "relight".into(),
        ..EngineCommand::new(program, &["engine"])
    };
    let config = SupervisorConfig {
        command,
        engine: engines.config,
        bounds,
    };
    Supervisor::start(config).context("cannot start the supervisor")
}

/// This very file, even if its path holds a newer build by the time of a restart.
fn engine_program() -> Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().context("cannot tell where this program is")
}

async fn run(
    handle: Handle,
    listener: TcpListener,
    server: ServerConfig,
    drain: Duration,
    (local, output): (SocketAddr, Output),
) -> Result<bool> {
    let (stopping, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let serving = relight_server::serve(listener, handle.clone(), server, closed(stopped));
    tasks.spawn(serving);
    let outcome = serve_model(&handle, drain, local, output).await;
    stopping.send_replace(true);
    while tasks.join_next().await.is_some() {}
    outcome
}

/// Announces the model and waits for a signal; returns whether the end was clean.
async fn serve_model(
    handle: &Handle,
    drain: Duration,
    local: SocketAddr,
    output: Output,
) -> Result<bool> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let ready = tokio::select! {
        ready = handle.wait_ready() => Some(ready),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    match ready {
        None => return Ok(handle.shutdown(drain).await.clean),
        Some(Ok(card)) => announce(&card, local, output),
        Some(Err(fault @ Fault::ModelInvalid { .. })) => {
            handle.shutdown(Duration::ZERO).await;
            return Err(fault.into());
        }
        // The supervisor keeps trying, and health says so.
        Some(Err(fault)) => output.note(&format!("no engine yet: {fault}")),
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = handle.stopped() => anyhow::bail!("the supervisor has stopped"),
    }
    Ok(handle.shutdown(drain).await.clean)
}

/// Whoever started us may not want to read this far: no reason to stop serving.
fn announce(card: &ModelCard, local: SocketAddr, output: Output) {
    if let Err(error) = output.line(&banner(card, local)) {
        tracing::warn!(%error, "nobody reads where this serves: http://{local}/v1");
    }
}

/// Resolves when the value becomes true or its sender is gone.
async fn closed(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// The start-up report: where, what, and how much memory it may take.
fn banner(card: &ModelCard, local: SocketAddr) -> String {
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let pages_bytes = u64::from(card.pages) * card.page_bytes;
    let fitting = u64::from(card.pages) * PAGE_TOKENS as u64;
    let token_bytes = card.page_bytes as f64 / PAGE_TOKENS as f64;
    format!(
        "serving  http://{local}/v1\n\
         model    {name} ({architecture}, {quantization}, {parameters:.1} M parameters)\n\
         context  {context} tokens, {slots} slots\n\
         memory   weights {weights} MiB, key/value pages as used up to {pages} MiB\n\
         fits     {fitting} tokens, {token:.1} KiB each, kept as {kv_type}\n\
         kernels  {kernels}, {threads} threads, speculation {speculation}\n\
         loaded   in {load_ms} ms",
        name = card.name,
        architecture = card.architecture,
        quantization = card.quantization,
        parameters = card.parameters as f64 / 1e6,
        context = card.context_tokens,
        slots = card.slots,
        weights = mebibytes(card.weights_bytes),
        pages = mebibytes(pages_bytes),
        token = token_bytes / 1024.0,
        kv_type = card.kv_type.word(),
        kernels = card.kernels,
        threads = card.threads,
        speculation = card.speculation.word(),
        load_ms = card.load_ms,
    )
}
