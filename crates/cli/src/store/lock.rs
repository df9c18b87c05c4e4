//! One pull at a time per file.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// Tries to find a lock file that its last holder has not just deleted.
const ATTEMPTS_MAX: usize = 3;

/// Held while a file is being fetched; the lock goes with the process, the file with this.
#[derive(Debug)]
pub(crate) struct PullLock {
    path: PathBuf,
    _file: File,
}

impl PullLock {
    /// # Errors
    /// `Locked` if another process holds it. It does not wait: a pull can take hours.
    pub(crate) fn acquire(target: &Path) -> Result<Self, StoreError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let path = target.with_file_name(name);
        let locked = || StoreError::Locked {
            target: target.to_owned(),
            lock: path.clone(),
        };
        for _ in 0..ATTEMPTS_MAX {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(StoreError::file("write", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(locked()),
                Err(TryLockError::Error(source)) => {
                    return Err(StoreError::file("lock", &path)(source));
                }
            }
            if is_at(&file, &path) {
                return Ok(Self { path, _file: file });
            }
        }
        Err(locked())
    }
}

/// Whether the file still has this name: its last holder may have deleted it in between,
/// and then a third process would lock a new one.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let ours = file.metadata().map(identity);
    let named = std::fs::metadata(path).map(identity);
    matches!((ours, named), (Ok(ours), Ok(named)) if ours == named)
}

impl Drop for PullLock {
    fn drop(&mut self) {
        // A lock file that stays is harmless: it is locked anew.
        std::fs::remove_file(&self.path).ok();
    }
}
