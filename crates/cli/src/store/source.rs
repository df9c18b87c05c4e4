//! Where a model comes from, as the user names it.

use std::fmt;

use super::error::StoreError;
use super::limits::NAME_BYTES_MAX;

/// A model as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file, a model of the catalogue, or one that is in the folder.
    Name(String),
    Hub(Repository),
    Package(Package),
}

/// `hf:user/name[:file]`, where the last part is a quantization or a file's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    pub(crate) user: String,
    pub(crate) name: String,
    pub(crate) wanted: Option<String>,
}

/// `pypi:name[==version]`, the name in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
}

const HUB_PREFIX: &str = "hf:";
const PACKAGE_PREFIX: &str = "pypi:";

impl Source {
    /// # Errors
    /// `InvalidSource` if what follows a prefix cannot be a repository or a package.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        if let Some(repository) = text.strip_prefix(HUB_PREFIX) {
            return Repository::parse(repository).map(Self::Hub);
        }
        if let Some(package) = text.strip_prefix(PACKAGE_PREFIX) {
            return Package::parse(package).map(Self::Package);
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl Repository {
    /// `user/name[:file]` without the prefix.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = || StoreError::InvalidSource {
            text: format!("{HUB_PREFIX}{text}"),
            expected: "a repository is written hf:user/name or hf:user/name:Q4_K_M",
        };
        let (repository, wanted) = match text.split_once(':') {
            Some((repository, wanted)) => (repository, Some(wanted)),
            None => (text, None),
        };
        let (user, name) = repository.split_once('/').ok_or_else(invalid)?;
        if ![user, name].into_iter().all(is_repository_part) {
            return Err(invalid());
        }
        if wanted.is_some_and(|wanted| !wanted.split('/').all(is_file_name)) {
            return Err(invalid());
        }
        Ok(Self {
            user: user.to_owned(),
            name: name.to_owned(),
            wanted: wanted.map(str::to_owned),
        })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{HUB_PREFIX}{}/{}", self.user, self.name)?;
        match &self.wanted {
            Some(wanted) => write!(formatter, ":{wanted}"),
            None => Ok(()),
        }
    }
}

impl Package {
    fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = || StoreError::InvalidSource {
            text: format!("{PACKAGE_PREFIX}{text}"),
            expected: "a package is written pypi:name or pypi:name==1.2",
        };
        let (name, version) = match text.split_once("==") {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let is_version = |version: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".!+_-".contains(&byte);
            version
                .as_bytes()
                .first()
                .is_some_and(u8::is_ascii_alphanumeric)
                && version.bytes().all(allowed)
        };
        if !is_package_name(name) || !version.is_none_or(is_version) {
            return Err(invalid());
        }
        Ok(Self {
            name: normal_name(name),
            version: version.map(str::to_owned),
        })
    }

    /// As pip reads it.
    pub(crate) fn requirement(&self) -> String {
        match &self.version {
            Some(version) => format!("{}=={version}", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for Package {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PACKAGE_PREFIX}{}", self.requirement())
    }
}

/// Lower case with single dashes (PEP 503).
pub(crate) fn normal_name(name: &str) -> String {
    let pieces = name.split(['-', '_', '.']);
    let pieces: Vec<String> = pieces
        .filter(|piece| !piece.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    pieces.join("-")
}

/// PEP 508. That it begins with a letter or digit also keeps it from being an option.
pub(crate) fn is_package_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    name.len() <= NAME_BYTES_MAX
        && ends
            .into_iter()
            .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(inner)
}

fn is_repository_part(part: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    is_file_name(part) && part.bytes().all(allowed)
}

/// Whether a name from outside may become one file or folder of ours. Hidden names are
/// refused with the rest: ours are hidden.
pub(crate) fn is_file_name(name: &str) -> bool {
    let forbidden =
        |character: char| character.is_control() || ['/', '\\', ':'].contains(&character);
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(forbidden)
}

#[cfg(test)]
mod tests;
