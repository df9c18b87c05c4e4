use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::*;

#[test]
fn every_unit_is_run_once() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        for (count, longest) in [0, 1, 2, 3, 7, 100]
            .into_iter()
            .flat_map(|count| [1, 5, usize::MAX].map(|longest| (count, longest)))
        {
            let runs: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            pool.for_each_run(count, longest, &|run| {
                assert!((1..=longest).contains(&run.len()));
                for unit in run {
                    runs[unit].fetch_add(1, Relaxed);
                }
            });
            assert!(runs.iter().all(|runs| runs.load(Relaxed) == 1));
        }
    }
}

#[test]
fn many_short_tasks_lose_no_unit() {
    for threads in 2..=4 {
        let pool = Pool::new(threads);
        let total = AtomicU64::new(0);
        for _ in 0..20_000 {
            pool.for_each(threads, &|unit| {
                total.fetch_add(1 + unit as u64, Relaxed);
            });
        }
        let of_one_task: usize = (1..=threads).sum();
        assert_eq!(total.into_inner(), 20_000 * of_one_task as u64);
    }
}

#[test]
fn chunks_cover_the_slice_once_and_the_last_may_be_short() {
    let pool = Pool::new(3);
    let mut data = vec![0_usize; 1003];
    pool.for_each_chunk(&mut data, 10, &|index, chunk| {
        chunk.iter_mut().for_each(|element| *element += index + 1);
    });
    let expected: Vec<usize> = (0..1003).map(|element| element / 10 + 1).collect();
    assert_eq!(data, expected);
}

/// Runs a task whose units wait for each other: it ends only if all members come.
fn meet(pool: &Pool) {
    pool.await_trust();
    let barrier = std::sync::Barrier::new(pool.threads());
    pool.for_each(pool.threads(), &|_unit| {
        barrier.wait();
    });
}

#[test]
fn all_members_come_to_a_task_that_lasts() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        (0..100).for_each(|_| meet(&pool));
    }
}

#[test]
fn a_parked_team_wakes_up() {
    let pool = Pool::new(3);
    for _ in 0..3 {
        while !pool.parked() {
            std::thread::yield_now();
        }
        meet(&pool);
    }
}

impl Pool {
    /// Waits until nobody sits out, as a member may on a machine with other work.
    fn await_trust(&self) {
        while !self.trust.iter().all(|trust| trust.holds(self.micros())) {
            std::thread::yield_now();
        }
    }

    /// Whether every member but the caller has parked.
    fn parked(&self) -> bool {
        let seats = self.team.seats[1..].iter();
        seats.into_iter().all(|Line(seat)| seat.parked.load(SeqCst))
    }
}

/// A member that is kept away must not hold up the task: the others do its share.
#[test]
fn nobody_waits_for_a_member_that_has_not_come() {
    let pool = Pool::new(2);
    while !pool.parked() {
        std::thread::yield_now();
    }
    // The member sleeps and nobody wakes it.
    pool.team.seats[1].0.parked.store(false, SeqCst);
    let caller = std::thread::current().id();
    pool.for_each(10, &|_unit| assert_eq!(std::thread::current().id(), caller));
    pool.team.seats[1].0.parked.store(true, SeqCst);
    meet(&pool);
}

/// The caller parks while a member is at its last unit, and is woken when that ends.
#[test]
fn a_parked_caller_wakes_up_and_its_wait_is_counted() {
    let begin = now();
    let pool = Pool::new(2);
    let mut waited = Duration::ZERO;
    for _ in 0..3 {
        let caller = std::thread::current().id();
        let barrier = std::sync::Barrier::new(2);
        pool.await_trust();
        pool.for_each(2, &|_unit| {
            barrier.wait();
            if std::thread::current().id() != caller {
                while !pool.team.caller_parked.load(SeqCst) {
                    std::thread::yield_now();
                }
            }
        });
        let more = pool.waited();
        assert!(waited < more && more < begin.elapsed());
        waited = more;
    }
    let alone = Pool::new(1);
    alone.for_each(100, &|_unit| {});
    assert_eq!(alone.waited(), Duration::ZERO);
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_goes_on() {
    let pool = Pool::new(2);
    for culprit in 0..2 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(2, &|unit| assert_ne!(unit, culprit, "culprit"));
        }));
        assert!(caught.is_err());
        meet(&pool);
    }
}

/// A payload whose drop panics too must neither end a member nor leave the caller waiting.
#[test]
fn all_members_may_panic_at_once_with_whatever_payload() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let pool = Pool::new(4);
    for _ in 0..10 {
        let barrier = std::sync::Barrier::new(4);
        pool.await_trust();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(4, &|_unit| {
                barrier.wait();
                std::panic::panic_any(Bomb);
            });
        }));
        std::mem::forget(caught.unwrap_err());
        meet(&pool);
    }
}
