//! A fixed team of threads that runs one task at a time, all members at once.
//!
//! The caller is member 0. A member that has nothing to do spins for some tens of
//! microseconds, because the next task of a forward pass comes at once, and then parks, so
//! that an idle engine burns no core. Which member computes what never changes a result:
//! tasks hand out whole outputs, and no sum is split between members.

#![expect(
    unsafe_code,
    reason = "lends the caller's closure and disjoint slices to the members"
)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};

/// Rounds of `spin_loop` before a member parks: about 30 us, ten times a gap between tasks.
const SPIN_ROUNDS: u32 = 1 << 11;

/// Bound on the team: more threads than any machine we serve on has cores.
pub const THREADS_MAX: usize = 512;

/// A task, as if it lived for ever; `Pool::run` sees to it that it lives long enough.
type LentTask = &'static (dyn Fn(usize) + Sync);

/// What the members share.
struct Shared {
    /// Counts tasks; a member runs one task for each value it sees.
    generation: AtomicUsize,
    /// The task of this generation. Valid from the increment of `generation` until
    /// `unfinished` is 0.
    task: Mutex<Option<LentTask>>,
    /// Members still at work on this generation.
    unfinished: AtomicUsize,
    /// Who to wake when the last member has finished.
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    closed: AtomicBool,
}

/// The team. Dropping it joins the threads.
pub struct Pool {
    shared: Arc<Shared>,
    members: Vec<JoinHandle<()>>,
    busy: AtomicBool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A team of `threads`, the caller included; at least 1, at most [`THREADS_MAX`].
    /// Where the system refuses a thread the team stays smaller.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            generation: AtomicUsize::new(0),
            task: Mutex::new(None),
            unfinished: AtomicUsize::new(0),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
            closed: AtomicBool::new(false),
        });
        let members = (1..threads.clamp(1, THREADS_MAX)).map_while(|index| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("kernel-{index}"));
            builder.spawn(move || shared.serve(index)).ok()
        });
        let members = members.collect();
        Self {
            shared,
            members,
            busy: AtomicBool::new(false),
        }
    }

    /// Members, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.members.len() + 1
    }

    /// Runs `task(member)` once on every member and returns when all have finished.
    ///
    /// # Panics
    /// With the panic of a member, after all have finished; and if a task is running already.
    pub fn run(&self, task: &(dyn Fn(usize) + Sync)) {
        if self.members.is_empty() {
            return task(0);
        }
        assert!(
            !self.busy.swap(true, Ordering::Acquire),
            "the pool runs one task at a time"
        );
        // SAFETY: the reference is dropped by every member before `unfinished` reaches 0,
        // and this function does not return, nor unwind, before that.
        let lent = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), LentTask>(task) };
        let shared = &self.shared;
        *lock(&shared.task) = Some(lent);
        *lock(&shared.caller) = Some(std::thread::current());
        shared
            .unfinished
            .store(self.members.len(), Ordering::Relaxed);
        shared.generation.fetch_add(1, Ordering::Release);
        for member in &self.members {
            // Free where the member spins: it has not parked, so there is no system call.
            member.thread().unpark();
        }
        // The panic must not leave before the members are done with the borrowed task.
        let own = catch_unwind(AssertUnwindSafe(|| task(0)));
        wait(|| shared.unfinished.load(Ordering::Acquire) == 0);
        *lock(&shared.task) = None;
        let theirs = lock(&shared.panic).take();
        self.busy.store(false, Ordering::Release);
        match (own, theirs) {
            (Err(own), theirs) => {
                // See `keep`.
                std::mem::forget(theirs);
                resume_unwind(own);
            }
            (Ok(()), Some(theirs)) => resume_unwind(theirs),
            (Ok(()), None) => {}
        }
    }

    /// Runs `work(index)` once for every index below `count`. Each member starts on a share of
    /// its own, neighbouring indices in order, so that it reads memory in one stream; then it
    /// helps with the other shares.
    pub fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.members.is_empty() {
            return (0..count).for_each(work);
        }
        let threads = self.threads();
        let shares: Vec<Share> = (0..threads)
            .map(|member| Share {
                next: AtomicUsize::new(count * member / threads),
                end: count * (member + 1) / threads,
            })
            .collect();
        self.run(&|member| {
            let (before, own_and_after) = shares.split_at(member);
            for share in own_and_after.iter().chain(before) {
                while let Some(index) = share.take() {
                    work(index);
                }
            }
        });
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter) and runs
    /// `work(chunk index, chunk)` once for each.
    ///
    /// # Panics
    /// If `chunk` is 0.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk: usize,
        work: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let chunks = data.len().div_ceil(chunk);
        let data = Disjoint::new(data);
        self.for_each(chunks, &|index| {
            let start = index * chunk;
            let end = data.len().min(start + chunk);
            // SAFETY: every index is handed out once, and chunks do not overlap.
            let piece = unsafe { data.slice(start..end) };
            work(index, piece);
        });
    }
}

/// Indices that one member starts on. On a cache line of its own, because every member counts
/// its own up all the time.
#[repr(align(64))]
struct Share {
    next: AtomicUsize,
    end: usize,
}

impl Share {
    /// An index that nobody has had.
    fn take(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.end).then_some(index)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.generation.fetch_add(1, Ordering::Release);
        for member in self.members.drain(..) {
            member.thread().unpark();
            // A member's panic was already handed to the caller of its task.
            drop(member.join());
        }
    }
}

impl Shared {
    /// A member's life: one task for each generation.
    fn serve(&self, member: usize) {
        let mut seen = 0;
        loop {
            wait(|| self.generation.load(Ordering::Acquire) != seen);
            seen += 1;
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            let task = *lock(&self.task);
            if let Some(task) = task
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(member)))
            {
                self.keep(panic);
            }
            let caller = lock(&self.caller).clone();
            // From here on the caller may go on: nothing of this task is touched again.
            if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
                && let Some(caller) = caller
            {
                caller.unpark();
            }
        }
    }

    /// Keeps a member's panic for the caller. Only one can be handed on; the others are leaked,
    /// because a payload may panic when it is dropped, which would end the member.
    fn keep(&self, panic: Box<dyn Any + Send>) {
        let mut kept = lock(&self.panic);
        if kept.is_none() {
            *kept = Some(panic);
        } else {
            std::mem::forget(panic);
        }
    }
}

/// Spins, then parks, until `done`. Whoever makes `done` true must unpark this thread.
fn wait(done: impl Fn() -> bool) {
    for _ in 0..SPIN_ROUNDS {
        if done() {
            return;
        }
        std::hint::spin_loop();
    }
    while !done() {
        std::thread::park();
    }
}

/// No code panics while it holds one of these locks, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slice that several members write at once, each to ranges of its own.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out `&mut` to disjoint ranges, which may cross threads if `T` may.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        let len = slice.len();
        Self {
            start: slice.as_mut_ptr(),
            len,
            lifetime: std::marker::PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// No two live slices of one `Disjoint` may overlap.
    #[expect(
        clippy::mut_from_ref,
        reason = "the point of this type; see the safety contract"
    )]
    pub(crate) unsafe fn slice(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range outside the slice"
        );
        // SAFETY: `range` lies within the slice that `start` came from.
        let first = unsafe { self.start.add(range.start) };
        // SAFETY: in bounds as above; the caller promises that nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(first, range.len()) }
    }
}

#[cfg(test)]
mod tests;
