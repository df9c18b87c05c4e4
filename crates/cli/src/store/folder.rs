//! Where model files are kept.

use std::env;
use std::path::{Path, PathBuf};

/// What decides on the folder, apart from `--models-dir`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) current: Option<PathBuf>,
    /// `XDG_DATA_HOME`, where a user's programs keep their data.
    pub(crate) data: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
}

impl Surroundings {
    pub(crate) fn of_process() -> Self {
        let set = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        Self {
            current: env::current_dir().ok(),
            data: set("XDG_DATA_HOME"),
            home: env::home_dir(),
        }
    }

    /// `models/` of the checkout that we run in, or else of the user's data.
    pub(crate) fn models(&self) -> PathBuf {
        if let Some(checkout) = self.current.as_deref().and_then(checkout) {
            return checkout.join("models");
        }
        let data = self
            .data
            .clone()
            .or_else(|| Some(self.home.as_ref()?.join(".local/share")));
        match data {
            Some(data) => data.join("relight/models"),
            None => PathBuf::from("models"),
        }
    }
}

/// The nearest folder above that holds the sources of this program.
fn checkout(current: &Path) -> Option<&Path> {
    current.ancestors().find(|folder| {
        folder.join("Cargo.toml").is_file() && folder.join("crates/cli/src/store.rs").is_file()
    })
}

#[cfg(test)]
mod tests;
