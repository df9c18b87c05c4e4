//! Memory mapped where huge pages fit.
//!
//! Weights and key/value state are read in streams of many megabytes, one after the other for
//! every token. In pages of 4 KiB the processor's own prefetch stops every 4 KiB and its
//! translations miss; in pages of 2 MiB the same core reads about half as much again
//! (docs/performance.md).
//!
//! The system rarely gives files in memory huge pages by itself (`shmem_enabled` is `never`
//! almost everywhere), but it can be asked to for a range that is there: `MADV_COLLAPSE`, Linux
//! 6.1. It is asked before the range is filled, when there is nothing to copy.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// What one entry of a page directory covers, on x86-64 and on AArch64 with pages of 4 KiB.
pub(super) const HUGE_BYTES: usize = 2 << 20;

/// From `linux/mman.h`; not every C library names it.
const MADV_COLLAPSE: i32 = 25;

/// Mapped bytes, and the address space around them that aligns them.
#[derive(Debug)]
pub(super) struct Mapping {
    reserved: NonNull<c_void>,
    reserved_len: usize,
    start: NonNull<u8>,
    len: usize,
    /// Whether all of it may be written.
    is_writable: bool,
    /// By whole huge page: whether it was asked for.
    asked: Vec<bool>,
}

// SAFETY: it owns its range of addresses alone, like a `Box<[u8]>`.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes of zeros that nobody else sees. They count as they are written, by huge
    /// pages where the system gives them.
    pub(super) fn private(len: usize) -> io::Result<Self> {
        let mut mapping = Self::reserve(len, 0, true)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let start = mapping.start.as_ptr().cast();
        // SAFETY: the range lies within the reservation, which is ours and holds nothing.
        unsafe { rustix::mm::mmap_anonymous(start, mapping.map_len(), protection, flags) }?;
        // SAFETY: this advice changes no byte of the range, which is mapped.
        let advised =
            unsafe { rustix::mm::madvise(start, mapping.map_len(), Advice::LinuxHugepage) };
        if let Err(error) = advised {
            tracing::debug!(%error, "private memory stays in small pages");
        }
        // Huge pages come by themselves.
        mapping.asked.clear();
        Ok(mapping)
    }

    /// `len` bytes of `file` from `offset` on, a multiple of 4096, shared with whoever else maps
    /// them. The file must be and stay that long.
    pub(super) fn shared(
        file: &File,
        offset: usize,
        len: usize,
        is_writable: bool,
    ) -> io::Result<Self> {
        let mapping = Self::reserve(len, offset, is_writable)?;
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, is_writable);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let start = mapping.start.as_ptr().cast();
        let (len, offset) = (mapping.map_len(), offset as u64);
        // SAFETY: the range lies within the reservation, which is ours and holds nothing.
        unsafe { rustix::mm::mmap(start, len, protection, flags, file, offset) }?;
        Ok(mapping)
    }

    /// Addresses without memory for `len` bytes that stand to huge pages as `offset` does.
    fn reserve(len: usize, offset: usize, is_writable: bool) -> io::Result<Self> {
        let reserved_len = len.max(1).saturating_add(2 * HUGE_BYTES);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses the range, so it holds nothing of ours.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(null_mut(), reserved_len, ProtFlags::empty(), flags)
        }?;
        let aligned = reserved.addr().next_multiple_of(HUGE_BYTES) + offset % HUGE_BYTES;
        let start = reserved
            .cast::<u8>()
            .wrapping_add(aligned - reserved.addr());
        let (Some(reserved), Some(start)) = (NonNull::new(reserved), NonNull::new(start)) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        Ok(Self {
            reserved,
            reserved_len,
            start,
            len,
            is_writable,
            asked: vec![false; len.div_ceil(HUGE_BYTES) + 1],
        })
    }

    /// A mapping cannot be empty.
    fn map_len(&self) -> usize {
        self.len.max(1)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped for reading and lives as long as `self`; nobody writes to
        // it but through `bytes_mut`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// # Panics
    /// If the mapping was not made to be written.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable, "the mapping is read-only");
        // SAFETY: as above, for writing, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// From here on it cannot be written.
    pub(super) fn make_read_only(mut self) -> io::Result<Self> {
        let start = self.start.as_ptr().cast();
        // SAFETY: the range is ours, and no reference to it is left.
        unsafe { rustix::mm::mprotect(start, self.map_len(), MprotectFlags::READ) }?;
        self.is_writable = false;
        Ok(self)
    }

    /// Asks for huge pages wherever one has room around bytes of `range`; each once. Content
    /// stays. What the system refuses stays in small pages.
    pub(super) fn make_huge(&mut self, range: Range<usize>) {
        let to_first = self.start.addr().get().wrapping_neg() % HUGE_BYTES;
        let whole = self.len.saturating_sub(to_first) / HUGE_BYTES;
        let first = range.start.saturating_sub(to_first) / HUGE_BYTES;
        let end = range.end.saturating_sub(to_first).div_ceil(HUGE_BYTES);
        for (index, asked) in self
            .asked
            .iter_mut()
            .enumerate()
            .take(end.min(whole))
            .skip(first)
        {
            if !std::mem::replace(asked, true) {
                let start = self
                    .start
                    .as_ptr()
                    .wrapping_add(to_first + index * HUGE_BYTES);
                collapse(start);
            }
        }
    }
}

/// Asks for the huge page at `start`, all of which is mapped.
fn collapse(start: *const u8) {
    // A range of a file of which nothing is there yet cannot be collapsed.
    // SAFETY: the byte is mapped for reading.
    unsafe { start.read_volatile() };
    // SAFETY: this advice changes no byte of the range.
    let code = unsafe { libc::madvise(start.cast_mut().cast(), HUGE_BYTES, MADV_COLLAPSE) };
    if code != 0 {
        let error = io::Error::last_os_error();
        tracing::trace!(%error, "a range stays in small pages");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole reservation is ours, and no reference into it is left.
        let unmapped = unsafe { rustix::mm::munmap(self.reserved.as_ptr(), self.reserved_len) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "a mapping stays");
        }
    }
}

#[cfg(test)]
mod tests;
