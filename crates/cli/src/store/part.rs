//! A file that is still being written, beside the place where it will be. Its hash runs
//! along, and nothing has the final name before size and hash are right.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::StoreError;

/// What a finished file must be, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) bytes: Option<u64>,
    /// Lower-case hexadecimal.
    pub(crate) sha256: Option<String>,
}

/// A partly written file.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    target: PathBuf,
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl Part {
    /// Goes on with what an earlier run has left of the same content, or begins. `content`
    /// tells apart what could be written to `target`: parts of two revisions do not mix.
    pub(crate) fn open(target: &Path, content: &str) -> Result<Self, StoreError> {
        let content = hexadecimal(&Sha256::digest(content));
        let suffix = content.get(..12).unwrap_or_default();
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{suffix}.part"));
        let path = target.with_file_name(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(StoreError::file("write", &path))?;
        let mut part = Self {
            path,
            target: target.to_owned(),
            file,
            hasher: Sha256::new(),
            bytes: 0,
        };
        part.bytes = hash_into(&mut part.file, &mut part.hasher)
            .map_err(StoreError::file("read", &part.path))?;
        Ok(part)
    }

    /// Bytes that are written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets what is written.
    pub(crate) fn restart(&mut self) -> Result<(), StoreError> {
        self.hasher = Sha256::new();
        self.bytes = 0;
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map_err(StoreError::file("write", &self.path))?;
        Ok(())
    }

    pub(crate) fn append(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(chunk).map_err(|source| {
            if source.kind() == io::ErrorKind::StorageFull {
                no_space(&self.path, chunk.len() as u64)
            } else {
                StoreError::file("write", &self.path)(source)
            }
        })?;
        self.hasher.update(chunk);
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        Ok(())
    }

    /// Gives the file its name if it is what was expected, and deletes it otherwise.
    /// Returns its SHA-256.
    pub(crate) fn finish(self, expected: &Expected) -> Result<String, StoreError> {
        let found = hexadecimal(&self.hasher.finalize());
        let file = self.target.display().to_string();
        let defect = match expected {
            Expected {
                bytes: Some(bytes), ..
            } if *bytes != self.bytes => Some(StoreError::WrongSize {
                file,
                expected: *bytes,
                found: self.bytes,
            }),
            Expected {
                sha256: Some(sha256),
                ..
            } if *sha256 != found => Some(StoreError::WrongChecksum {
                file,
                expected: sha256.clone(),
                found: found.clone(),
            }),
            _ => None,
        };
        if let Some(defect) = defect {
            drop(self.file);
            std::fs::remove_file(&self.path).map_err(StoreError::file("delete", &self.path))?;
            return Err(defect);
        }
        self.file
            .sync_all()
            .and_then(|()| std::fs::rename(&self.path, &self.target))
            .and_then(|()| sync_folder(&self.target))
            .map_err(StoreError::file("write", &self.target))?;
        remove_parts(&self.target);
        Ok(found)
    }
}

/// Deletes the parts of other contents that earlier runs have left: they can no longer be
/// wanted. One that stays only takes space.
fn remove_parts(target: &Path) {
    let name = target
        .file_name()
        .map(|name| format!("{}.", name.display()));
    let entries = target
        .parent()
        .and_then(|folder| std::fs::read_dir(folder).ok());
    let parts = entries.into_iter().flatten().flatten().filter(|entry| {
        let file = entry.file_name();
        let file = file.to_string_lossy();
        file.ends_with(".part") && name.as_ref().is_some_and(|name| file.starts_with(name))
    });
    for part in parts {
        std::fs::remove_file(part.path()).ok();
    }
}

/// Makes a rename durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// SHA-256 of a whole file.
pub(crate) fn file_sha256(path: &Path) -> Result<String, StoreError> {
    let mut hasher = Sha256::new();
    File::open(path)
        .and_then(|mut file| hash_into(&mut file, &mut hasher))
        .map_err(StoreError::file("read", path))?;
    Ok(hexadecimal(&hasher.finalize()))
}

fn hash_into(file: &mut File, hasher: &mut Sha256) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0_u64;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(total);
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
        total = total.saturating_add(count as u64);
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fails if the file system of `folder` has less than `needed` bytes free.
pub(crate) fn expect_space(folder: &Path, needed: u64) -> Result<(), StoreError> {
    let available = free_bytes(folder);
    if available.is_some_and(|available| available < needed) {
        return Err(no_space(folder, needed));
    }
    Ok(())
}

fn no_space(path: &Path, needed: u64) -> StoreError {
    StoreError::NoSpace {
        folder: path.to_owned(),
        needed,
        available: free_bytes(path).unwrap_or(0),
    }
}

/// `None` where the file system does not say.
fn free_bytes(path: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(path).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
}

#[cfg(test)]
mod tests;
