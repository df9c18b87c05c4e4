//! A position in untrusted bytes that only moves over bytes that are there.

use std::fmt;

use crate::error::{GgufError, Measured};

#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Never above `bytes.len()`.
    position: usize,
    /// Where `bytes` begins in the file, for error messages.
    origin: usize,
}

impl fmt::Debug for Reader<'_> {
    /// Without the bytes, which may be a whole model.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reader")
            .field("offset", &self.offset())
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], origin: usize) -> Self {
        Self {
            bytes,
            position: 0,
            origin,
        }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn offset(&self) -> usize {
        self.origin.saturating_add(self.position)
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// Bytes that were passed since `start` was copied from this reader.
    pub(crate) fn since(&self, start: &Self) -> &'a [u8] {
        self.bytes
            .get(start.position..self.position)
            .unwrap_or_default()
    }

    /// Fails unless `count` things of at least `bytes_each` can still follow, so that a
    /// loop over a claimed count is bounded by the file.
    pub(crate) fn expect_room(&self, count: u64, bytes_each: u64) -> Result<(), GgufError> {
        let needed = count.saturating_mul(bytes_each);
        if needed > self.remaining() as u64 {
            return Err(self.truncated(needed));
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, count: u64) -> Result<&'a [u8], GgufError> {
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| self.position.checked_add(count))
            .and_then(|end| Some((end, self.bytes.get(self.position..end)?)));
        let Some((end, bytes)) = taken else {
            return Err(self.truncated(count));
        };
        self.position = end;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let needed = self.truncated(N as u64);
        self.take(N as u64)?.try_into().map_err(|_length| needed)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A `u64` length and that many bytes of UTF-8.
    pub(crate) fn string(&mut self, measured: Measured, limit: u64) -> Result<&'a str, GgufError> {
        let offset = self.offset();
        let found = self.u64()?;
        if found > limit {
            return Err(GgufError::TooLong {
                measured,
                offset,
                found,
                limit,
            });
        }
        let bytes = self.take(found)?;
        std::str::from_utf8(bytes).map_err(|_encoding| GgufError::InvalidUtf8 { measured, offset })
    }

    fn truncated(&self, needed: u64) -> GgufError {
        GgufError::Truncated {
            offset: self.offset(),
            needed,
            available: self.remaining(),
        }
    }
}
