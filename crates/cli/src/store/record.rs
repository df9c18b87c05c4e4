//! What is known about a model file, kept in a small JSON file beside it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::limits::RECORD_BYTES_MAX;

/// What is known about a model file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The sources that led to this file, as users name them.
    pub(crate) sources: Vec<String>,
    pub(crate) bytes: u64,
    /// Of the content when it was fetched or last checked.
    pub(crate) sha256: String,
}

impl Record {
    /// `None` if there is no readable record or the file has changed its size since.
    pub(crate) fn read(model: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(path(model))
            .ok()?
            .take(RECORD_BYTES_MAX)
            .read_to_string(&mut text)
            .ok()?;
        let record: Self = serde_json::from_str(&text).ok()?;
        let bytes = std::fs::metadata(model).ok()?.len();
        (record.bytes == bytes).then_some(record)
    }

    /// Adds a source to what is known. A folder that cannot be written to only costs
    /// another check next time.
    pub(crate) fn write(model: &Path, source: &str, bytes: u64, sha256: &str) {
        let mut record = Self::read(model)
            .filter(|record| record.sha256 == sha256)
            .unwrap_or_default();
        if !record.sources.iter().any(|known| known == source) {
            record.sources.push(source.to_owned());
        }
        record.bytes = bytes;
        sha256.clone_into(&mut record.sha256);
        if let Ok(text) = serde_json::to_string_pretty(&record) {
            std::fs::write(path(model), text).ok();
        }
    }

    pub(crate) fn remove(model: &Path) {
        std::fs::remove_file(path(model)).ok();
    }
}

fn path(model: &Path) -> PathBuf {
    let mut name = model.file_name().unwrap_or_default().to_owned();
    name.push(".json");
    model.with_file_name(name)
}
