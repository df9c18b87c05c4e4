//! Frames on the pipe. Sans I/O: shells read and write the bytes.
//!
//! ```text
//!   length    u32, little-endian
//!   checksum  u32, little-endian, of the value's bytes
//!   value     `length` bytes of postcard
//! ```
//!
//! The pipe itself loses nothing, but a process that may be broken writes to it: a frame that
//! something has scribbled over between encoding and writing must not pass for another one.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::FRAME_BYTES_MAX;

const LENGTH_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 4;
const HEADER_BYTES: usize = LENGTH_BYTES + CHECKSUM_BYTES;

/// Why bytes on the pipe are not a frame. After any of these the pipe has no meaning left
/// and must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {found} bytes is above the limit of {limit}")]
    TooLong { found: usize, limit: usize },
    #[error("frame of {length} bytes is not as it was written")]
    Corrupt { length: usize },
    #[error("frame of {found} bytes does not hold a value of this protocol")]
    Malformed { found: usize },
    #[error("frame holds a value and {extra} bytes too many")]
    TrailingBytes { extra: usize },
}

/// Appends `value` as one frame.
///
/// # Errors
/// `TooLong` if the value does not fit a frame; `target` is unchanged then.
pub fn encode<T: Serialize>(value: &T, target: &mut Vec<u8>) -> Result<(), FrameError> {
    let malformed = FrameError::Malformed { found: 0 };
    let body = postcard::to_stdvec(value).map_err(|_serialization| malformed)?;
    seal(&body, target)
}

/// Appends bytes that may be a value as one frame.
///
/// # Errors
/// As [`encode`].
pub fn seal(body: &[u8], target: &mut Vec<u8>) -> Result<(), FrameError> {
    let too_long = FrameError::TooLong {
        found: body.len(),
        limit: FRAME_BYTES_MAX,
    };
    if body.len() > FRAME_BYTES_MAX {
        return Err(too_long);
    }
    let length = u32::try_from(body.len()).map_err(|_overflow| too_long)?;
    target.reserve(HEADER_BYTES.saturating_add(body.len()));
    target.extend_from_slice(&length.to_le_bytes());
    target.extend_from_slice(&checksum(body).to_le_bytes());
    target.extend_from_slice(body);
    Ok(())
}

/// Every step is reversible, so two bodies of the same length that differ in one word never
/// come to the same state, of which half is kept.
fn checksum(body: &[u8]) -> u32 {
    // Odd, with bits all over: 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = body.as_chunks::<8>();
    let last = rest.iter().rev();
    let last = last.fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    // The length comes last, so that zeros at the end count.
    let state = words.chain([last, !(body.len() as u64)]).fold(0, mix);
    let state = (state ^ (state >> 32)).wrapping_mul(FACTOR);
    u32::try_from(state >> 32).unwrap_or_default()
}

/// Collects bytes and yields the values in them.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Start of the first unread frame in `buffer`.
    start: usize,
}

impl FrameDecoder {
    /// Adds bytes as they came off the pipe.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole value, or `None` until more bytes come.
    ///
    /// # Errors
    /// See `FrameError`; the decoder must not be used afterwards.
    pub fn next_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let unread = self.buffer.get(self.start..).unwrap_or_default();
        let Some((length, rest)) = unread.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let malformed = FrameError::Malformed { found: usize::MAX };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_overflow| malformed)?;
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong {
                found: length,
                limit: FRAME_BYTES_MAX,
            });
        }
        let Some((expected, rest)) = rest.split_first_chunk::<CHECKSUM_BYTES>() else {
            return Ok(None);
        };
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        if checksum(body) != u32::from_le_bytes(*expected) {
            return Err(FrameError::Corrupt { length });
        }
        let (value, extra) = postcard::take_from_bytes(body)
            .map_err(|_deserialization| FrameError::Malformed { found: length })?;
        if !extra.is_empty() {
            return Err(FrameError::TrailingBytes { extra: extra.len() });
        }
        self.start = self
            .start
            .saturating_add(HEADER_BYTES)
            .saturating_add(length);
        Ok(Some(value))
    }

    /// Bytes that belong to a frame not yet whole. At end of file this must be 0.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.start)
    }
}

#[cfg(test)]
mod tests;
