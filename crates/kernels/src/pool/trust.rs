//! Whether a member is worth waiting for.
//!
//! A member that loses its core for a moment, to a thread that has little to do, costs that
//! moment. But where a neighbour computes on the member's core, the member is taken off it in
//! the middle of a unit again and again, everybody waits until it is back, and a team of two is
//! slower than its caller alone. So waits are added up, old ones fade, and who has cost more
//! than a second member brings sits out for a while.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Of a wait, half is forgotten if nothing comes of the next 20 ms; waits that follow closely
/// fade as if by `exp(-t / 40 ms)`, so waiting all the time adds up to 40 ms.
const HALF_LIFE_US: u64 = 20_000;

/// Two fifths of that: what a second member that loses no core saves of the time.
const LOST_US_MAX: u64 = 2 * HALF_LIFE_US * 2 / 5;

/// How long a member sits out.
const REST_US: u64 = 250_000;

/// What it may cost after that before it rests again, little against the rest; the more the
/// longer ago that was.
const PROBATION_US: u64 = LOST_US_MAX / 4;

/// What the caller thinks of one member. Times are microseconds since any moment.
#[derive(Default)]
pub(super) struct Trust {
    /// When its rest ends or ended.
    back: AtomicU64,
    /// What waiting for it has cost, as of `judged`.
    lost: AtomicU64,
    judged: AtomicU64,
}

impl Trust {
    /// Whether the member may take part.
    pub(super) fn holds(&self, now: u64) -> bool {
        now >= self.back.load(Relaxed)
    }

    /// The caller has waited for this member for `waited`; a run took the caller itself `run`
    /// on average, and to wait for as long is nobody's fault.
    pub(super) fn judge(&self, now: u64, run: u64, waited: u64) {
        let age = now.saturating_sub(self.judged.swap(now, Relaxed));
        let remembered = faded(self.lost.load(Relaxed), age);
        let lost = remembered + waited.saturating_sub(run);
        if lost >= LOST_US_MAX {
            self.back.store(now + REST_US, Relaxed);
            // Nothing of this fades before it is back: it returns on probation.
            self.judged.store(now + REST_US, Relaxed);
            self.lost.store(LOST_US_MAX - PROBATION_US, Relaxed);
        } else {
            self.lost.store(lost, Relaxed);
        }
    }
}

/// What is left of `lost` after `age`: halves, and straight lines between them.
fn faded(lost: u64, age: u64) -> u64 {
    let halvings = (age / HALF_LIFE_US).min(63);
    let halved = lost >> halvings;
    halved - halved * (age % HALF_LIFE_US) / (2 * HALF_LIFE_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges `trust` once per millisecond, a part of which was waiting, for `ms`; returns when
    /// it first did not hold.
    fn spend(trust: &Trust, start: u64, ms: u64, waited: u64) -> Option<u64> {
        (1..=ms).map(|ms| start + 1000 * ms).find(|now| {
            trust.judge(*now, 0, waited);
            !trust.holds(*now)
        })
    }

    #[test]
    fn short_losses_of_a_core_are_borne_and_a_shared_core_is_not() {
        assert_eq!(spend(&Trust::default(), 0, 10_000, 350), None);
        let found = spend(&Trust::default(), 0, 10_000, 500);
        assert!(found.is_some_and(|found| found < 100_000), "{found:?}");
    }

    #[test]
    fn who_was_sent_to_rest_may_come_again_and_has_to_prove_itself_again() {
        let trust = Trust::default();
        let found = spend(&trust, 0, 100, 900).unwrap();
        assert!(!trust.holds(found + REST_US - 1));
        let back = found + REST_US;
        assert!(trust.holds(back));
        let again = spend(&trust, back, 100, 900).unwrap();
        assert!(again - back < found / 2);
        // A while of good company, and all is forgotten.
        let forgotten = again + REST_US + 20 * HALF_LIFE_US;
        trust.judge(forgotten, 0, 0);
        let late = spend(&trust, forgotten, 100, 900).unwrap();
        assert_eq!(late - forgotten, found);
    }

    #[test]
    fn a_wait_as_long_as_a_run_is_nobodys_fault() {
        let trust = Trust::default();
        trust.judge(1_000_000, 500_000, 500_000);
        assert!(trust.holds(1_000_000));
        trust.judge(2_000_000, 500_000, 600_000);
        assert!(!trust.holds(2_000_000));
    }

    #[test]
    fn what_was_lost_fades_by_half_in_every_half_life() {
        assert_eq!(faded(1000, 0), 1000);
        assert_eq!(faded(1000, HALF_LIFE_US / 2), 750);
        assert_eq!(faded(1000, HALF_LIFE_US), 500);
        assert_eq!(faded(1000, 3 * HALF_LIFE_US), 125);
        assert_eq!(faded(u64::MAX >> 20, u64::MAX), 0);
    }
}
