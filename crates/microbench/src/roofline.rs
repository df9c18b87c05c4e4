//! What this machine can do at most.

#![expect(
    unsafe_code,
    clippy::disallowed_methods,
    reason = "a measuring tool for developers: it reads the clock and picks a tier"
)]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Far more than any cache holds, in words of eight bytes.
const WORDS: usize = (512 << 20) / 8;
const PAGE_BYTES: usize = 4096;
const RUNS: usize = 7;
const ROUNDS: u64 = 20_000_000;
/// Independent sums, enough to hide the latency of every instruction.
const CHAINS: usize = 12;

#[derive(Clone, Copy)]
enum Work {
    Read,
    Bytes,
    Floats,
}

/// Best rates of one thread and of two, of several short runs; 0 where an instruction set has no
/// measurement yet.
#[derive(Debug, Clone, Copy)]
pub struct Roofline {
    /// Memory read, 10^9 bytes a second.
    pub read_gb_s: [f64; 2],
    /// Products of bytes by the widest instruction, 10^9 a second.
    pub int8_gmac_s: [f64; 2],
    /// Operations on f32, 10^9 a second.
    pub f32_gflop_s: [f64; 2],
}

impl Roofline {
    /// Measures in some seconds.
    #[must_use]
    pub fn measure() -> Self {
        let memory = on_large_pages(WORDS, 1_u64);
        let rates = |work: Work, unit: f64| {
            [1, 2].map(|threads| {
                let runs = (0..RUNS).map(|_| run(work, &memory, threads) * unit / 1e9);
                runs.fold(0.0, f64::max)
            })
        };
        Self {
            read_gb_s: rates(Work::Read, 1.0),
            int8_gmac_s: rates(Work::Bytes, 1.0),
            f32_gflop_s: rates(Work::Floats, 2.0),
        }
    }
}

/// `count` elements on large pages where the system grants them, as the engine's weights and
/// pages have them.
#[must_use]
pub fn on_large_pages<T: Clone>(count: usize, value: T) -> Vec<T> {
    let mut memory: Vec<T> = Vec::with_capacity(count);
    let start: *mut u8 = memory.as_mut_ptr().cast();
    let start = start.wrapping_add(start.align_offset(PAGE_BYTES)).cast();
    let length = (count * size_of::<T>()).saturating_sub(PAGE_BYTES);
    let advice = rustix::mm::Advice::LinuxHugepage;
    // SAFETY: the range lies in the allocation, and advice about page sizes changes no byte.
    let advised = unsafe { rustix::mm::madvise(start, length, advice) };
    // Without large pages rates are lower, and still those of this machine.
    advised.ok();
    memory.resize(count, value);
    memory
}

/// Units of work per second of all threads, from the first start to the last end: bytes read,
/// or products.
fn run(work: Work, memory: &[u64], threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let part = memory.len() / threads;
    let spans: Vec<(Instant, Instant, u64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = memory
            .chunks(part)
            .take(threads)
            .map(|chunk| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    let units = perform(work, chunk);
                    (start, Instant::now(), units)
                })
            })
            .collect();
        let spans = workers
            .into_iter()
            .flat_map(std::thread::ScopedJoinHandle::join);
        spans.collect()
    });
    let first = spans.iter().map(|span| span.0).min();
    let last = spans.iter().map(|span| span.1).max();
    let units: u64 = spans.iter().map(|span| span.2).sum();
    match (first, last) {
        (Some(first), Some(last)) => units as f64 / (last - first).as_secs_f64(),
        _ => 0.0,
    }
}

#[cfg(target_arch = "x86_64")]
fn perform(work: Work, memory: &[u64]) -> u64 {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
        // SAFETY: the processor has both.
        return unsafe { x86::wide(work, memory) };
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has both.
        return unsafe { x86::narrow(work, memory) };
    }
    portable(work, memory)
}

#[cfg(not(target_arch = "x86_64"))]
fn perform(work: Work, memory: &[u64]) -> u64 {
    portable(work, memory)
}

fn portable(work: Work, memory: &[u64]) -> u64 {
    match work {
        Work::Read => read(memory),
        Work::Bytes | Work::Floats => 0,
    }
}

/// Reads everything once; compiled for the instruction set of its caller.
#[inline(always)]
fn read(memory: &[u64]) -> u64 {
    let mut seen = [0; 32];
    for words in memory.as_chunks::<32>().0 {
        for (sum, word) in seen.iter_mut().zip(words) {
            *sum |= word;
        }
    }
    black_box(seen);
    8 * memory.len() as u64
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_fmadd_ps, _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_ps,
        _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_set1_epi8, _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::{CHAINS, ROUNDS, Work, read};

    /// Every chain feeds itself, so that no product can be left out or computed once.
    macro_rules! chains {
        ($start:expr, $next:expr) => {{
            let mut chains = [black_box($start); CHAINS];
            let next = $next;
            for _ in 0..ROUNDS {
                for chain in &mut chains {
                    *chain = next(*chain);
                }
            }
            black_box(chains);
            ROUNDS * CHAINS as u64
        }};
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn narrow(work: Work, memory: &[u64]) -> u64 {
        let (ones, halves) = (
            black_box(_mm256_set1_epi8(1)),
            black_box(_mm256_set1_ps(0.5)),
        );
        match work {
            Work::Read => read(memory),
            Work::Bytes => 32 * chains!(ones, |sum| _mm256_maddubs_epi16(sum, ones)),
            Work::Floats => 8 * chains!(halves, |sum| _mm256_fmadd_ps(sum, halves, halves)),
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn wide(work: Work, memory: &[u64]) -> u64 {
        let (ones, halves) = (
            black_box(_mm512_set1_epi8(1)),
            black_box(_mm512_set1_ps(0.5)),
        );
        match work {
            Work::Read => read(memory),
            Work::Bytes => 64 * chains!(ones, |sum| _mm512_dpbusd_epi32(sum, ones, ones)),
            Work::Floats => 16 * chains!(halves, |sum| _mm512_fmadd_ps(sum, halves, halves)),
        }
    }
}
