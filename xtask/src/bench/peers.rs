//! Who is measured: Relight, and the servers of llama.cpp and ik_llama.cpp, each started for
//! the same number of clients with the same context.

mod ik;
mod llama;
mod sdist;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::Options;
use crate::setup::Profile;
use crate::terminal::output;
use crate::workspace::Workspace;

/// Every server gets as many threads.
pub(super) const THREADS: &str = "2";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// Without speculation, as the peers are: what that brings depends on the text.
    Relight,
    /// With it.
    Speculating,
    Llama,
    Ik,
}

impl Engine {
    pub(super) const PEERS: [Self; 2] = [Self::Llama, Self::Ik];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Relight => "Relight",
            Self::Speculating => "Relight, n-grams",
            Self::Llama => "llama.cpp",
            Self::Ik => "ik_llama.cpp",
        }
    }
}

/// What a server is started for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) clients: usize,
    /// Tokens of each client.
    pub(super) context: usize,
}

/// A binary that can be measured.
#[derive(Debug, Clone)]
pub(super) struct Contestant {
    pub(super) engine: Engine,
    binary: PathBuf,
    /// Value of `--speculation`, where there is such a flag.
    speculation: Option<&'static str>,
}

/// Who takes part, and why who does not.
#[derive(Debug, Default)]
pub(super) struct Field {
    pub(super) contestants: Vec<Contestant>,
    pub(super) absent: Vec<(Engine, String)>,
}

impl Field {
    /// Builds what is missing; a peer that cannot be had is absent with the reason.
    pub(super) fn gather(workspace: &Workspace, options: &Options) -> Result<Self> {
        let relight = match &options.relight {
            Some(path) => path.clone(),
            None => workspace.build_relight(Profile::Release)?,
        };
        let mut field = Self::default();
        let mut plain = None;
        if can_speculate(&relight)? {
            field.add(Engine::Speculating, Ok(relight.clone()), Some("ngram"));
            plain = Some("off");
        } else {
            let reason = "this relight has no `--speculation`".to_owned();
            field.absent.push((Engine::Speculating, reason));
        }
        field.add(Engine::Relight, Ok(relight), plain);
        if options.peers {
            let given = |path: &Option<PathBuf>| path.clone().map(Ok);
            let llama = given(&options.llama_server).unwrap_or_else(|| llama::build(workspace));
            field.add(Engine::Llama, llama, None);
            let ik = given(&options.ik_server).unwrap_or_else(|| ik::build(workspace));
            field.add(Engine::Ik, ik, None);
        }
        Ok(field)
    }

    fn add(&mut self, engine: Engine, binary: Result<PathBuf>, speculation: Option<&'static str>) {
        match binary.and_then(|binary| Ok(std::path::absolute(binary)?)) {
            Ok(binary) => self.contestants.push(Contestant {
                engine,
                binary,
                speculation,
            }),
            Err(error) => {
                println!("without {}: {error:#}", engine.name());
                self.absent.push((engine, format!("{error:#}")));
            }
        }
    }

    pub(super) fn relight(&self) -> Option<&Path> {
        let relight = self
            .contestants
            .iter()
            .find(|contestant| contestant.engine == Engine::Relight);
        relight.map(|contestant| contestant.binary.as_path())
    }
}

fn can_speculate(relight: &Path) -> Result<bool> {
    let help = output(Command::new(relight).args(["serve", "--help"]))?;
    Ok(help.contains("--speculation"))
}

impl Contestant {
    /// The command that serves `model`, but for host and port.
    pub(super) fn serve(&self, model: &Path, setup: Setup) -> Command {
        let mut command = Command::new(&self.binary);
        let clients = setup.clients.to_string();
        match self.engine {
            Engine::Relight | Engine::Speculating => {
                let context = setup.context.to_string();
                command.arg("serve").arg(model);
                command.args(["-t", THREADS, "-np", &clients, "-c", &context]);
                if let Some(speculation) = self.speculation {
                    command.args(["--speculation", speculation]);
                }
            }
            Engine::Llama | Engine::Ik => {
                // Both divide this between their clients.
                let context = (setup.clients * setup.context).to_string();
                command.arg("-m").arg(model);
                command.args(["-t", THREADS, "-np", &clients, "-c", &context]);
                if self.engine == Engine::Llama {
                    // Faster than one cache for all, where a burst can also overflow.
                    command.arg("-no-kvu");
                } else {
                    // It leaves a log where it is started.
                    command.current_dir(std::env::temp_dir());
                }
                if self.engine == Engine::Ik && setup.clients > 1 {
                    // Its flash attention aborts over a batch of several clients' prompts.
                    command.arg("-no-fa");
                }
            }
        }
        command
    }
}
