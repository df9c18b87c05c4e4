//! A fixed team of threads that shares out one task at a time.
//!
//! A task is a row of units. Each member starts on a share of its own, neighbouring units in
//! order, and then helps with what others have not begun. Which member computes what never
//! changes a result: units are whole outputs, and no sum is split between members.
//!
//! ```text
//! caller                                   member
//! deal out shares                          spin, then park, until `epoch` is odd and new
//! epoch += 1: open                         inside = epoch
//! wake whoever is parked                   still open? no: leave
//! take units until none is left            take units until none is left
//! epoch += 1: closed                       inside = 0
//! wait for whoever is inside
//! ```
//!
//! The team has the manners of a guest. Nobody waits for a member that has not come: it finds
//! the task closed when the system gives it a core at last, and the others have done its
//! share. A member that keeps being taken off its core in the middle of a unit holds up the
//! others, and sits out for a while ([`trust`]). Whoever has nothing to do spins for some tens
//! of microseconds, because the next task of a forward pass comes at once, and then parks: an
//! idle engine burns no core, and a member that lost its core to a neighbour can have that of
//! the one who waits for it.
//!
//! Whoever announces something and then looks at what another announces (`inside` and `epoch`,
//! `parked` and `epoch`, `caller_parked` and `inside`) does so by exchanging: of two such, one
//! sees the other. Sequentially consistent stores would do on a processor, and on x86 they are
//! exchanges, but emulators of ARM have been seen to let the look come first
//! (`qemu-aarch64` 7.2 on x86), and then both sides park for good.

#![expect(unsafe_code, reason = "lends the caller's task to the members")]

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

mod disjoint;
mod share;
mod trust;

pub(crate) use disjoint::Disjoint;
use share::Share;
use trust::Trust;

/// Bound on the team: more threads than any machine we serve on has cores.
pub const THREADS_MAX: usize = 512;

/// Rounds of `spin_loop` before somebody parks: on Zen 2 about 40 us, ten times a gap between
/// tasks.
const SPIN_ROUNDS: u32 = 1 << 11;

/// What the members share.
struct Team {
    /// Odd while a task is open, even between tasks.
    epoch: Line<AtomicUsize>,
    /// The open task. Valid for whoever is inside.
    task: AtomicPtr<Task<'static>>,
    /// By member; the first is the caller's.
    seats: Vec<Line<Seat>>,
    /// Whether the caller has parked, and who it is.
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    /// Whether there is a `panic`, so that nobody has to lock it to see.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    dissolved: AtomicBool,
}

/// A cache line and its neighbour, which the CPU fetches along, for one writer alone.
#[repr(align(128))]
struct Line<T>(T);

/// A member's place.
#[derive(Default)]
struct Seat {
    /// The epoch of the task that the member is in, 0 if in none.
    inside: AtomicUsize,
    /// Set by the member before it parks, cleared by whoever wakes it.
    parked: AtomicBool,
    /// Set by the caller while the member must not come.
    resting: AtomicBool,
    share: Share,
}

/// What the members do together.
struct Task<'a> {
    work: &'a (dyn Fn(Range<usize>) + Sync),
    /// Units that are taken at once.
    longest: u32,
}

/// The team. Dropping it joins the threads.
pub struct Pool {
    team: Arc<Team>,
    threads: Vec<JoinHandle<()>>,
    /// By member; the first is the caller, whom nobody waits for.
    trust: Vec<Trust>,
    /// What times are counted from.
    start: Instant,
    busy: AtomicBool,
    /// Nanoseconds that the caller has waited for the other members.
    waited: AtomicU64,
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
        let threads = threads.clamp(1, THREADS_MAX);
        let seats = std::iter::repeat_with(|| Line(Seat::default()));
        let team = Arc::new(Team {
            epoch: Line(AtomicUsize::new(0)),
            task: AtomicPtr::new(std::ptr::null_mut()),
            seats: seats.take(threads).collect(),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            dissolved: AtomicBool::new(false),
        });
        let members = (1..threads).map_while(|index| {
            let team = Arc::clone(&team);
            let builder = std::thread::Builder::new().name(format!("kernel-{index}"));
            builder.spawn(move || team.serve(index)).ok()
        });
        let threads: Vec<_> = members.collect();
        Self {
            team,
            trust: (0..=threads.len()).map(|_| Trust::default()).collect(),
            threads,
            start: now(),
            busy: AtomicBool::new(false),
            waited: AtomicU64::new(0),
        }
    }

    /// Members, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `work(unit)` once for every unit below `count`.
    ///
    /// # Panics
    /// As [`Self::for_each_run`].
    pub fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.for_each_run(count, usize::MAX, &|run| run.for_each(work));
    }

    /// Runs `work` on runs of neighbouring units, at most `longest` at once, which cover every
    /// unit below `count` once.
    ///
    /// # Panics
    /// With the panic of a unit, others may not have been run then; if a task is running
    /// already; and if `count` does not fit 32 bits.
    pub fn for_each_run(&self, count: usize, longest: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let longest = longest.clamp(1, u32::MAX as usize) as u32;
        if count <= 1 || self.threads.is_empty() {
            let runs = (0..count).step_by(longest as usize);
            return runs.for_each(|start| work(start..count.min(start + longest as usize)));
        }
        assert!(u32::try_from(count).is_ok(), "units are counted in 32 bits");
        assert!(!self.busy.swap(true, SeqCst), "one task at a time");
        let mut task = Task { work, longest };
        let opened = self.micros();
        self.muster(count, opened);
        self.team.open(&mut task);
        self.wake();
        // A panic must not leave before the members are done with the borrowed task.
        let own = catch_unwind(AssertUnwindSafe(|| task.run(&self.team.seats, 0)));
        self.team.close();
        if !self.team.is_empty() {
            let runs = *own.as_ref().unwrap_or(&1);
            self.wait_for_members(opened, runs);
        }
        let theirs = self.team.take_panic();
        self.busy.store(false, SeqCst);
        match (own, theirs) {
            (Err(own), theirs) => {
                // See `keep`.
                std::mem::forget(theirs);
                resume_unwind(own);
            }
            (Ok(_), Some(theirs)) => resume_unwind(theirs),
            (Ok(_), None) => {}
        }
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter) and runs
    /// `work(chunk index, chunk)` once for each.
    ///
    /// # Panics
    /// If `chunk` is 0, and as [`Self::for_each_run`].
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

    /// Deals `count` units to as many members as have earned trust.
    fn muster(&self, count: usize, now: u64) {
        let seats = || self.team.seats.iter().zip(&self.trust);
        let trusted = seats().filter(|(_, trust)| trust.holds(now)).count();
        let mut dealt = 0;
        let bound = |dealt: usize| (count * dealt.min(count) / trusted.min(count)) as u32;
        for (Line(seat), trust) in seats() {
            let holds = trust.holds(now);
            seat.resting.store(!holds, Relaxed);
            let next = dealt + usize::from(holds);
            seat.share.deal(bound(dealt)..bound(next));
            dealt = next;
        }
    }

    /// Wakes those who have a share and have parked. Nobody who spins costs a system call.
    fn wake(&self) {
        for (thread, Line(seat)) in self.threads.iter().zip(&self.team.seats[1..]) {
            let wanted = !seat.resting.load(Relaxed) && !seat.share.is_empty();
            if wanted && seat.parked.load(SeqCst) && seat.parked.swap(false, SeqCst) {
                thread.thread().unpark();
            }
        }
    }

    /// How long the caller has waited for the other members, over all tasks.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Relaxed))
    }

    /// Waits until those inside have ended the units they are at.
    fn wait_for_members(&self, opened: u64, runs: u64) {
        let begin = now();
        if spin(|| self.team.is_empty().then_some(())).is_none() {
            self.park_until_empty(opened, runs);
        }
        self.waited
            .fetch_add(begin.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Parks until nobody is inside, and judges the members that it had to wait for.
    #[cold]
    fn park_until_empty(&self, opened: u64, runs: u64) {
        let closed = self.micros();
        let run = (closed - opened) / runs.max(1);
        for (Line(seat), trust) in self.team.seats.iter().zip(&self.trust) {
            if seat.inside.load(SeqCst) != 0 {
                self.team.park_caller_until(seat);
                let now = self.micros();
                trust.judge(now, run, now - closed);
            }
        }
    }

    fn micros(&self) -> u64 {
        now().duration_since(self.start).as_micros() as u64
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team.dissolved.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A member's panic was already handed to the caller of its task.
            drop(thread.join());
        }
    }
}

impl Team {
    /// Lets the members in.
    fn open(&self, task: &mut Task<'_>) {
        self.task.store((&raw mut *task).cast(), Relaxed);
        self.epoch.0.fetch_add(1, SeqCst);
    }

    /// Lets nobody in any more.
    fn close(&self) {
        self.epoch.0.fetch_add(1, SeqCst);
    }

    fn is_empty(&self) -> bool {
        let mut seats = self.seats.iter();
        seats.all(|Line(seat)| seat.inside.load(SeqCst) == 0)
    }

    /// Waits until the member of `seat` is not inside.
    fn park_caller_until(&self, seat: &Seat) {
        *lock(&self.caller) = Some(std::thread::current());
        self.caller_parked.swap(true, SeqCst);
        while seat.inside.load(SeqCst) != 0 {
            std::thread::park();
        }
        self.caller_parked.store(false, SeqCst);
    }

    /// A member's life: it has a look into every task that it does not come too late for.
    fn serve(&self, member: usize) {
        let Line(seat) = &self.seats[member];
        let mut seen = 0;
        while let Some(epoch) = self.next_task(seat, seen) {
            seen = epoch;
            seat.inside.swap(epoch, SeqCst);
            // Either the caller, who closes before it looks at `inside`, sees it, or this sees
            // that the task is closed.
            if self.epoch.0.load(SeqCst) == epoch {
                // SAFETY: the caller keeps the task where it is while somebody is inside.
                let task = unsafe { &*self.task.load(Relaxed) };
                let done = catch_unwind(AssertUnwindSafe(|| task.run(&self.seats, member)));
                if let Err(panic) = done {
                    self.keep(panic);
                }
            }
            seat.inside.swap(0, SeqCst);
            // From here on the caller may go on: nothing of this task is touched again.
            if self.caller_parked.load(SeqCst)
                && let Some(caller) = &*lock(&self.caller)
            {
                caller.unpark();
            }
        }
    }

    /// Waits for a task that is not `seen`; `None` when the team is dissolved.
    fn next_task(&self, seat: &Seat, seen: usize) -> Option<usize> {
        let look = || {
            let epoch = self.epoch.0.load(SeqCst);
            let dissolved = self.dissolved.load(Relaxed);
            let open = epoch != seen && epoch % 2 == 1 && !seat.resting.load(Relaxed);
            (dissolved || open).then_some((epoch, dissolved))
        };
        let (epoch, dissolved) = loop {
            if let Some(found) = spin(look) {
                break found;
            }
            seat.parked.swap(true, SeqCst);
            // Either the caller, who opens before it looks at `parked`, sees it, or this sees
            // that there is a task.
            while look().is_none() && seat.parked.load(SeqCst) {
                std::thread::park();
            }
            seat.parked.store(false, SeqCst);
        };
        (!dissolved).then_some(epoch)
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
        self.panicked.store(true, SeqCst);
    }

    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panicked
            .swap(false, SeqCst)
            .then(|| lock(&self.panic).take())?
    }
}

impl Task<'_> {
    /// Takes units until none is left: those of `member`'s own share from the front, so that it
    /// reads memory in one stream, then those of the others from the end. How many runs it took.
    fn run(&self, seats: &[Line<Seat>], member: usize) -> u64 {
        let (before, own_and_after) = seats.split_at(member);
        let mut shares = own_and_after
            .iter()
            .chain(before)
            .map(|Line(seat)| &seat.share);
        let mut runs = 0;
        let mut work = |run| {
            (self.work)(run);
            runs += 1;
        };
        if let Some(own) = shares.next() {
            while let Some(run) = own.take_first(self.longest) {
                work(run);
            }
        }
        for share in shares {
            while let Some(run) = share.take_last(self.longest) {
                work(run);
            }
        }
        runs
    }
}

/// Looks again and again, but not for long, until something is found.
fn spin<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    for _ in 0..SPIN_ROUNDS {
        let found = look();
        if found.is_some() {
            return found;
        }
        std::hint::spin_loop();
    }
    None
}

/// The clock decides who computes, never what.
#[expect(clippy::disallowed_methods, reason = "to see who is late")]
fn now() -> Instant {
    Instant::now()
}

/// No code panics while it holds one of these locks, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
