//! The supervisor's thread: clocks, channels, the pipe and the child, around the core.

use std::thread::JoinHandle;

use relight_protocol::Fault;
use tokio::sync::{mpsc, watch};

use crate::arenas::Arenas;
use crate::config::SupervisorConfig;
use crate::handle::{Control, DrainReport, Message, Report};

/// Where messages come in.
#[derive(Debug)]
pub(crate) struct Inlets {
    pub(crate) messages: mpsc::Receiver<Message>,
    pub(crate) controls: mpsc::Receiver<Control>,
}

/// Starts the thread.
pub(crate) fn start(
    config: SupervisorConfig,
    arenas: Arenas,
    inlets: Inlets,
    report: watch::Sender<Report>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("supervisor".into())
        .spawn(move || runtime.block_on(run(config, arenas, inlets, report)))
}

async fn run(
    _config: SupervisorConfig,
    _arenas: Arenas,
    mut inlets: Inlets,
    _report: watch::Sender<Report>,
) {
    loop {
        tokio::select! {
            message = inlets.messages.recv() => match message {
                Some(Message::Submit(submission)) => {
                    submission.reply.send(Err(Fault::EngineUnavailable)).ok();
                }
                Some(Message::Cancel { .. }) => {}
                None => return,
            },
            control = inlets.controls.recv() => {
                if let Some(Control::Shutdown { reply, .. }) = control {
                    reply.send(DrainReport { failed: 0, clean: true }).ok();
                }
                return;
            }
        }
    }
}
