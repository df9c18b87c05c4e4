//! Whether a member is worth waiting for.
//!
//! A member whose core a neighbour wants too is taken off it in the middle of a unit, and
//! everybody waits until it is back: a team of two is then slower than its caller alone. Who
//! was late sits out for a moment, and longer each time it is late again soon after.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A wait of so many times what a run of units takes is not that of a long run: the member has
/// lost its core, or shares the caller's.
const LATE_RUNS: u64 = 4;

/// How long a member sits out, at first and at most: what is lost by one more try is little
/// against the latter.
const REST_US: std::ops::RangeInclusive<u64> = 1_000..=250_000;

/// Who has been in time for so long has its first rest before it again.
const PROVEN_US: u64 = 50_000;

/// What the caller thinks of one member. Times are microseconds since any moment.
#[derive(Default)]
pub(super) struct Trust {
    /// When its rest ends or ended.
    back: AtomicU64,
    /// How long that was.
    rest: AtomicU64,
}

impl Trust {
    /// Whether the member may take part.
    pub(super) fn holds(&self, now: u64) -> bool {
        now >= self.back.load(Relaxed)
    }

    /// The caller has spun in vain, then waited for this member for `waited`; a run took the
    /// caller itself `run` on average.
    pub(super) fn judge(&self, now: u64, run: u64, waited: u64) {
        if waited < LATE_RUNS * run {
            return;
        }
        let proven = now.saturating_sub(self.back.load(Relaxed)) >= PROVEN_US;
        let longer = if proven {
            0
        } else {
            self.rest.load(Relaxed) * 2
        };
        let rest = longer.clamp(*REST_US.start(), *REST_US.end());
        self.rest.store(rest, Relaxed);
        self.back.store(now + rest, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_again_and_again_rests_longer_until_it_has_proven_itself() {
        let trust = Trust::default();
        let mut now = 1_000_000;
        trust.judge(now, 2000, 4000);
        assert!(trust.holds(now), "a long unit");
        let mut rests = Vec::new();
        for _ in 0..12 {
            trust.judge(now, 10, 3000);
            assert!(!trust.holds(now));
            let rest = (0..).find(|rest| trust.holds(now + rest)).unwrap();
            rests.push(rest);
            now += rest + 2000;
        }
        assert_eq!(rests[..4], [1000, 2000, 4000, 8000]);
        assert_eq!(rests.last(), Some(REST_US.end()));
        now += PROVEN_US;
        trust.judge(now, 10, 3000);
        assert!(trust.holds(now + REST_US.start()));
    }
}
