use std::sync::atomic::AtomicU64;

use super::*;

#[test]
fn every_member_runs_every_task_once() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        let counts: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
        for _ in 0..1000 {
            pool.run(&|member| {
                counts[member].fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(
            counts
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 1000)
        );
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

#[test]
fn every_index_is_handed_out_once() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        for count in [0, 1, 2, 3, 7, 100] {
            let runs: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            pool.for_each(count, &|index| {
                runs[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_goes_on() {
    let pool = Pool::new(2);
    for culprit in 0..2 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|member| assert_ne!(member, culprit, "culprit"));
        }));
        assert!(caught.is_err());
        let ran = AtomicUsize::new(0);
        pool.run(&|_member| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_parked_team_wakes_up() {
    let pool = Pool::new(2);
    let (sender, receiver) = std::sync::mpsc::channel();
    // Long enough for the member to have parked: it gives up spinning within a millisecond.
    receiver
        .recv_timeout(std::time::Duration::from_millis(20))
        .unwrap_err();
    pool.run(&|member| sender.clone().send(member).unwrap());
    let mut members: Vec<usize> = receiver.try_iter().collect();
    members.sort_unstable();
    assert_eq!(members, [0, 1]);
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
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|_member| std::panic::panic_any(Bomb));
        }));
        std::mem::forget(caught.unwrap_err());
        let ran = AtomicUsize::new(0);
        pool.run(&|_member| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 4);
    }
}
