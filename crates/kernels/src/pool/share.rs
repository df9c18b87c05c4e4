//! A member's share of the units of a task.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Whoever takes units takes this part of what is left of a share: long runs of neighbours
/// first, single units at the end, when somebody may be waiting for the last.
const RUN_PART: u32 = 4;

/// Units that nobody has begun, in one word: the first in the lower half, the end in the upper.
/// The task's epoch orders all that is read and written around it.
#[derive(Default)]
pub(super) struct Share(AtomicU64);

impl Share {
    pub(super) fn deal(&self, units: Range<u32>) {
        self.0.store(pack(units), Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        unpack(self.0.load(Relaxed)).is_empty()
    }

    /// The first of what is left, at most `longest` units; `None` if nothing is.
    pub(super) fn take_first(&self, longest: u32) -> Option<Range<usize>> {
        self.take(longest, |left, len| {
            let middle = left.start + len;
            (left.start..middle, middle..left.end)
        })
    }

    /// The last of what is left.
    pub(super) fn take_last(&self, longest: u32) -> Option<Range<usize>> {
        self.take(longest, |left, len| {
            let middle = left.end - len;
            (middle..left.end, left.start..middle)
        })
    }

    /// Cuts a run off what is left: `cut(left, len)` gives the run and the rest.
    fn take(
        &self,
        longest: u32,
        cut: impl Fn(Range<u32>, u32) -> (Range<u32>, Range<u32>),
    ) -> Option<Range<usize>> {
        let cut = |packed| {
            let left = unpack(packed);
            let len = (left.len() as u32 / RUN_PART).clamp(1, longest);
            (!left.is_empty()).then(|| cut(left, len))
        };
        let rest = |packed| cut(packed).map(|(_run, rest)| pack(rest));
        let before = self.0.fetch_update(Relaxed, Relaxed, rest).ok()?;
        let (run, _rest) = cut(before)?;
        Some(run.start as usize..run.end as usize)
    }
}

fn pack(units: Range<u32>) -> u64 {
    u64::from(units.start) | u64::from(units.end) << 32
}

fn unpack(packed: u64) -> Range<u32> {
    packed as u32..(packed >> 32) as u32
}
