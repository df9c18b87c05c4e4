//! Memory that outlives the engine: files without a name that the supervisor owns and hands
//! over, or private memory where there is no supervisor. All mapping of memory is here.
//!
//! ```text
//!   weights:  header (4096 bytes) | tiles
//!   header:   magic 8 | version u32 | complete u32 | identity u128 | tile bytes u64
//! ```

#![expect(
    unsafe_code,
    reason = "maps files, and views mapped bytes as half floats and words"
)]

mod kv;
mod mapping;
mod recorder;
mod words;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

pub use kv::KvArena;
use mapping::Mapping;
use memmap2::{Advice, Mmap, UncheckedAdvice};
use relight_protocol::ArenaFds;
use rustix::fs::SealFlags;
pub use words::SharedWords;

pub use recorder::Recorder;

/// Start of the tiles: a whole page, so that they are aligned for any vector.
const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"RELIGHTW";
/// Raised with every change of the tile formats or of this header.
const VERSION: u32 = 1;
const IDENTITY_START: usize = 16;
const LENGTH_START: usize = 32;
const LENGTH_END: usize = 40;

const WEIGHTS: &str = "weights arena";

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    #[error("cannot open the {what}")]
    Open {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot size the {what} to {bytes} bytes")]
    Size {
        what: &'static str,
        bytes: usize,
        #[source]
        source: io::Error,
    },
    #[error("cannot map the {what}")]
    Map {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the {what} has {bytes} bytes instead of {expected}")]
    Short {
        what: &'static str,
        bytes: usize,
        expected: usize,
    },
    #[error("the weights arena was sealed with another model in it")]
    OtherModel,
}

/// The files behind the arenas; without them the memory is private to this process.
#[derive(Debug, Default)]
pub struct ArenaFiles {
    pub weights: Option<File>,
    pub kv: Option<File>,
    pub recorder: Option<File>,
}

impl ArenaFiles {
    /// Opens the arenas that the parent process holds as files of our own.
    ///
    /// # Errors
    /// `Open`, also when the parent is gone.
    pub fn of_parent(descriptors: Option<ArenaFds>) -> Result<Self, ArenaError> {
        let Some(descriptors) = descriptors else {
            return Ok(Self::default());
        };
        Ok(Self {
            weights: Some(open_parent_fd(descriptors.weights, WEIGHTS)?),
            kv: Some(open_parent_fd(descriptors.kv, kv::KV)?),
            recorder: Some(open_parent_fd(descriptors.recorder, recorder::RECORDER)?),
        })
    }
}

fn open_parent_fd(descriptor: i32, what: &'static str) -> Result<File, ArenaError> {
    let parent = rustix::process::getppid().map_or(1, rustix::process::Pid::as_raw_pid);
    let path = format!("/proc/{parent}/fd/{descriptor}");
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|source| ArenaError::Open { what, source })
}

/// A model file, mapped.
#[derive(Debug)]
pub struct ModelFile {
    map: Mmap,
    file: File,
}

impl ModelFile {
    /// # Errors
    /// `Open` or `Map`; a directory or an empty file cannot be mapped.
    pub fn open(path: &Path) -> Result<Self, ArenaError> {
        let what = "model file";
        let open_error = |source| ArenaError::Open { what, source };
        let map_error = |source| ArenaError::Map { what, source };
        let file = File::open(path).map_err(open_error)?;
        // SAFETY: the bytes are only read. If another process writes to the file, what is
        // read may change or the access may raise SIGBUS: `gguf` checks every value where it
        // uses it, and the death of this process is survived by design.
        let map = unsafe { Mmap::map(&file) }.map_err(map_error)?;
        Ok(Self { map, file })
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// When it was last changed, in nanoseconds since the epoch; 0 where that is not known.
    #[must_use]
    pub fn modified_ns(&self) -> u128 {
        let modified = self.file.metadata().and_then(|about| about.modified());
        let since_epoch = modified
            .ok()
            .and_then(|when| when.duration_since(std::time::UNIX_EPOCH).ok());
        since_epoch.map_or(0, |since| since.as_nanos())
    }

    /// Tells the kernel that the file will be read once, in order.
    pub fn advise_sequential(&self) {
        if let Err(error) = self.map.advise(Advice::Sequential) {
            tracing::debug!(%error, "no read-ahead for the model file");
        }
    }

    /// Tells the kernel that this process is done with some bytes. They can be read again.
    pub fn release(&self, range: std::ops::Range<usize>) {
        let bytes = range.len();
        // SAFETY: the mapping is a shared, read-only one of a file: pages that are dropped
        // come back from the file with the same content.
        let released = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, bytes)
        };
        if let Err(error) = released {
            tracing::debug!(%error, "pages of the model file stay mapped");
        }
    }
}

/// The weights arena as it was found.
#[derive(Debug)]
pub enum WeightsArena {
    /// An earlier engine has built it.
    Sealed(SealedWeights),
    /// It has to be built.
    Fresh(FreshWeights),
}

impl WeightsArena {
    /// Opens the arena for a model of this identity whose tiles take `tile_bytes`.
    ///
    /// # Errors
    /// `OtherModel` if it is sealed with another identity, else what the system refused.
    pub fn open(file: Option<File>, identity: u128, tile_bytes: usize) -> Result<Self, ArenaError> {
        let Some(file) = file else {
            return FreshWeights::private(identity, tile_bytes).map(Self::Fresh);
        };
        let length = file_length(&file, WEIGHTS)?;
        let bytes = HEADER_BYTES + tile_bytes;
        if length == bytes {
            let sealed = SealedWeights::map(&file)?;
            if sealed.is_complete(identity, tile_bytes) {
                return Ok(Self::Sealed(sealed));
            }
        }
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if seals.contains(SealFlags::WRITE) {
            return Err(ArenaError::OtherModel);
        }
        FreshWeights::shared(file, identity, tile_bytes).map(Self::Fresh)
    }
}

fn file_length(file: &File, what: &'static str) -> Result<usize, ArenaError> {
    let about = file
        .metadata()
        .map_err(|source| ArenaError::Open { what, source })?;
    Ok(usize::try_from(about.len()).unwrap_or(usize::MAX))
}

fn set_length(file: &File, bytes: usize, what: &'static str) -> Result<(), ArenaError> {
    file.set_len(bytes as u64)
        .map_err(|source| ArenaError::Size {
            what,
            bytes,
            source,
        })
}

/// A weights arena that is being filled.
#[derive(Debug)]
pub struct FreshWeights {
    map: Mapping,
    file: Option<File>,
    identity: u128,
}

impl FreshWeights {
    fn private(identity: u128, tile_bytes: usize) -> Result<Self, ArenaError> {
        let map = Mapping::private(HEADER_BYTES + tile_bytes).map_err(map_error)?;
        let file = None;
        Ok(Self {
            map,
            file,
            identity,
        })
    }

    fn shared(file: File, identity: u128, tile_bytes: usize) -> Result<Self, ArenaError> {
        let bytes = HEADER_BYTES + tile_bytes;
        // Through zero, so that nothing of an unfinished build is left.
        set_length(&file, 0, WEIGHTS)?;
        set_length(&file, bytes, WEIGHTS)?;
        // The file has no name and belongs to the supervisor, which never touches its bytes;
        // it runs one engine at a time, so nobody else maps it.
        let mut map = Mapping::shared(&file, 0, bytes, true).map_err(map_error)?;
        map.make_huge(0..bytes);
        Ok(Self {
            map,
            file: Some(file),
            identity,
        })
    }

    /// Where the tiles go.
    pub fn tiles(&mut self) -> &mut [u8] {
        let bytes = self.map.bytes_mut();
        bytes.get_mut(HEADER_BYTES..).unwrap_or_default()
    }

    /// Marks the arena as complete and makes it read-only for good.
    ///
    /// # Errors
    /// What the system refused.
    pub fn seal(mut self) -> Result<SealedWeights, ArenaError> {
        let header = self.header();
        if let Some(target) = self.map.bytes_mut().get_mut(..header.len()) {
            target.copy_from_slice(&header);
        }
        let Some(file) = self.file else {
            let map = self.map.make_read_only().map_err(map_error)?;
            return Ok(SealedWeights { map });
        };
        // A file with a writable mapping cannot be sealed.
        drop(self.map);
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        if let Err(error) = rustix::fs::fcntl_add_seals(&file, seals) {
            tracing::warn!(%error, "the weights arena cannot be sealed");
        }
        SealedWeights::map(&file)
    }

    fn header(&self) -> [u8; LENGTH_END] {
        let mut header = [0; LENGTH_END];
        let tile_bytes = self.map.bytes().len().saturating_sub(HEADER_BYTES) as u64;
        let fields = MAGIC
            .into_iter()
            .chain(VERSION.to_le_bytes())
            .chain(1_u32.to_le_bytes())
            .chain(self.identity.to_le_bytes())
            .chain(tile_bytes.to_le_bytes());
        for (target, byte) in header.iter_mut().zip(fields) {
            *target = byte;
        }
        header
    }
}

fn map_error(source: io::Error) -> ArenaError {
    ArenaError::Map {
        what: WEIGHTS,
        source,
    }
}

/// A complete weights arena.
#[derive(Debug)]
pub struct SealedWeights {
    map: Mapping,
}

impl SealedWeights {
    /// Only the one engine that the supervisor runs maps the file, and it does not write to a
    /// sealed one.
    fn map(file: &File) -> Result<Self, ArenaError> {
        let bytes = file_length(file, WEIGHTS)?;
        let map = Mapping::shared(file, 0, bytes, false).map_err(map_error)?;
        Ok(Self { map })
    }

    fn is_complete(&self, identity: u128, tile_bytes: usize) -> bool {
        let fixed = MAGIC
            .into_iter()
            .chain(VERSION.to_le_bytes())
            .chain(1_u32.to_le_bytes());
        let bytes = self.map.bytes();
        bytes
            .get(..IDENTITY_START)
            .is_some_and(|found| found.iter().copied().eq(fixed))
            && bytes.get(IDENTITY_START..LENGTH_START) == Some(&identity.to_le_bytes())
            && bytes.get(LENGTH_START..LENGTH_END) == Some(&(tile_bytes as u64).to_le_bytes())
    }

    #[must_use]
    pub fn tiles(&self) -> &[u8] {
        self.map.bytes().get(HEADER_BYTES..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for SealedWeights {
    fn as_ref(&self) -> &[u8] {
        self.tiles()
    }
}

#[cfg(test)]
mod tests;
