use std::collections::BTreeMap;

use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{ChoiceIndex, RequestId};

use super::*;
use crate::backend::Backend;
use crate::cost::StepWork;
use crate::fake::{FakeBackend, argmax};
use crate::seeded::Seeded;

const VOCABULARY: usize = 50;

fn key(request: u64, choice: u16) -> SequenceKey {
    SequenceKey {
        request: RequestId(request),
        choice: ChoiceIndex(choice),
    }
}

fn start(key: SequenceKey, prompt: &[u32], generated: usize) -> SequenceStart {
    SequenceStart {
        key,
        tokens: prompt.to_vec(),
        prompt_count: prompt.len(),
        tokens_max: prompt.len() + generated,
    }
}

/// A scheduler over the fake backend that draws greedily.
struct Bench {
    scheduler: Scheduler,
    backend: FakeBackend,
    /// Tokens so far and length at which it ends.
    open: BTreeMap<SequenceKey, (Vec<u32>, usize)>,
    done: BTreeMap<SequenceKey, Vec<u32>>,
    /// Drafts that came true.
    accepted: usize,
}

impl Bench {
    fn new(pages: u32, slots: usize, batch_rows: usize, chunk_rows: usize) -> Self {
        let config = SchedulerConfig {
            slots,
            batch_rows,
            chunk_rows,
            drafting: Drafting::Never,
        };
        let backend = FakeBackend::new(VOCABULARY, pages as usize);
        Self {
            scheduler: Scheduler::new(config, PageStore::adopt(pages, 0, &backend)),
            backend,
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            accepted: 0,
        }
    }

    /// As [`Self::new`], with drafts.
    fn drafting(mut self, drafting: Drafting) -> Self {
        self.scheduler.config.drafting = drafting;
        self
    }

    fn add(&mut self, start: SequenceStart) {
        let state = (start.tokens.clone(), start.tokens_max);
        self.open.insert(start.key, state);
        self.scheduler.add(start);
    }

    fn cancel(&mut self, key: SequenceKey) {
        self.open.remove(&key);
        self.scheduler.remove(key);
    }

    /// One step; returns what it computed.
    fn step(&mut self) -> StepPlan {
        let plan = self.scheduler.plan(&self.backend);
        for copy in plan.copies() {
            self.backend
                .copy_page_prefix(copy.source, copy.target, copy.tokens);
        }
        let mut logits = Vec::new();
        let backend = &mut self.backend;
        plan.with_batch(|batch| backend.forward(batch, &mut logits))
            .unwrap();
        self.scheduler.confirm(&plan, &self.backend);
        assert_eq!(logits.len(), plan.logit_rows() * VOCABULARY);
        for draw in plan.draws() {
            let rows = logits.chunks(VOCABULARY).skip(draw.first);
            for (index, row) in rows.take(draw.rows.len()).enumerate() {
                let token = argmax(row);
                if !self.take(draw.key, token, index > 0) || !draw.goes_on(index, token) {
                    break;
                }
            }
        }
        plan
    }

    /// Takes the next token of a sequence; false if that was its last.
    fn take(&mut self, key: SequenceKey, token: u32, is_draft: bool) -> bool {
        self.accepted += usize::from(is_draft);
        if is_draft {
            self.scheduler.confirm_draft(key, &self.backend);
        }
        let (tokens, end) = self.open.get_mut(&key).unwrap();
        tokens.push(token);
        if tokens.len() == *end {
            let (tokens, _end) = self.open.remove(&key).unwrap();
            self.done.insert(key, tokens);
            self.scheduler.remove(key);
            return false;
        }
        self.scheduler.push(key, token);
        true
    }

    fn run_to_end(&mut self) {
        let mut steps = 0;
        while self.scheduler.has_work() {
            drop(self.step());
            steps += 1;
            assert!(steps < 100_000, "no progress");
        }
        assert!(self.open.is_empty());
        self.scheduler.audit().unwrap();
        assert_eq!(self.scheduler.stats().pages_used, 0);
    }
}

/// What a sequence generates undisturbed.
fn solo(prompt: &[u32], generated: usize) -> Vec<u32> {
    let mut bench = Bench::new(40, 1, 4096, 4096);
    bench.add(start(key(0, 0), prompt, generated));
    bench.run_to_end();
    bench.done.remove(&key(0, 0)).unwrap()
}

fn prompt_of(random: &mut Seeded, length: usize) -> Vec<u32> {
    (0..length)
        .map(|_index| u32::try_from(random.below(VOCABULARY)).unwrap())
        .collect()
}

#[test]
fn sixteen_prompts_with_one_prefix_compute_it_once() {
    let mut random = Seeded::new(1);
    let prefix = prompt_of(&mut random, 1000);
    let mut bench = Bench::new(400, 16, 256, 256);
    for request in 0..16 {
        let mut prompt = prefix.clone();
        prompt.push(u32::try_from(request).unwrap());
        bench.add(start(key(request, 0), &prompt, 4));
    }
    bench.run_to_end();
    let once = 1001;
    let tail_each = 1001 - 15 * PAGE_TOKENS + 3;
    assert!(
        bench.backend.rows <= once + 16 * tail_each,
        "{} rows",
        bench.backend.rows
    );
    let hits: usize = bench
        .scheduler
        .take_hits()
        .iter()
        .map(|(_key, tokens)| tokens)
        .sum();
    assert!(hits >= 15 * 15 * PAGE_TOKENS);
}

/// All but the tokens that fill no page of their own is there when a conversation goes on.
#[test]
fn a_second_turn_computes_its_new_tokens_alone() {
    let mut random = Seeded::new(11);
    let mut bench = Bench::new(400, 4, 256, 256);
    bench.add(start(key(1, 0), &prompt_of(&mut random, 4000), 20));
    bench.run_to_end();
    let mut turn = bench.done[&key(1, 0)].clone();
    let new = prompt_of(&mut random, 30);
    turn.extend(&new);
    let before = bench.backend.rows;
    bench.add(start(key(2, 0), &turn, 1));
    bench.run_to_end();
    let rows = bench.backend.rows - before;
    assert!(rows < new.len() + PAGE_TOKENS, "{rows} rows");
}

#[test]
fn choices_fork_at_the_end_of_their_prompt() {
    let mut random = Seeded::new(2);
    for length in [1, 2, 40, 64, 65, 128, 130] {
        let prompt = prompt_of(&mut random, length);
        let mut bench = Bench::new(64, 8, 64, 16);
        for choice in 0..4 {
            bench.add(start(key(1, choice), &prompt, 3));
        }
        bench.run_to_end();
        let expected = solo(&prompt, 3);
        for choice in 0..4 {
            assert_eq!(bench.done[&key(1, choice)], expected);
        }
        // The prompt once, its last token for each fork, two tokens of each choice.
        assert_eq!(bench.backend.rows, length + 3 + 4 * 2, "length {length}");
    }
}

#[test]
fn a_hit_within_a_page_is_copied() {
    let mut random = Seeded::new(3);
    let first = prompt_of(&mut random, 130);
    let mut second = first[..100].to_vec();
    second.extend(prompt_of(&mut random, 20));
    let mut bench = Bench::new(16, 2, 512, 512);
    bench.add(start(key(1, 0), &first, 2));
    bench.run_to_end();
    bench.add(start(key(2, 0), &second, 2));
    bench.run_to_end();
    assert_eq!(bench.backend.copied, 100 - PAGE_TOKENS);
    assert_eq!(bench.done[&key(2, 0)], solo(&second, 2));
}

#[test]
fn decodes_go_on_beside_a_long_prompt() {
    let mut random = Seeded::new(4);
    let mut bench = Bench::new(64, 2, 32, 32);
    bench.add(start(key(1, 0), &[1, 2, 3], 20));
    drop(bench.step());
    bench.add(start(key(2, 0), &prompt_of(&mut random, 300), 2));
    for _step in 0..9 {
        let plan = bench.step();
        assert_eq!(plan.parts()[0].key, key(1, 0));
        assert_eq!(plan.parts()[0].rows, 1);
        assert_eq!(plan.rows().len(), 32);
    }
}

/// A long prompt is overtaken only by what arrives before waiting has earned it the
/// difference in length, and then ends as if it were alone.
#[test]
fn the_shorter_prompt_is_served_first_but_not_for_ever() {
    const LONG: usize = 600;
    const SHORT: usize = 64;
    const ROWS: usize = 64;
    let overtaking = (LONG - SHORT).div_ceil(ROWS / admission::AGEING_DIVISOR);
    // Each that overtakes fills a step.
    let bound = overtaking + LONG.div_ceil(ROWS) + 1;
    let mut random = Seeded::new(5);
    let mut bench = Bench::new(300, 3, ROWS, ROWS);
    let long = key(0, 0);
    bench.add(start(long, &prompt_of(&mut random, LONG), 1));
    let mut steps = 0;
    // A new short prompt arrives with every step, enough to fill it.
    while bench.open.contains_key(&long) {
        steps += 1;
        bench.add(start(key(steps, 0), &prompt_of(&mut random, SHORT), 1));
        let plan = bench.step();
        if steps == 1 {
            assert_eq!(plan.parts()[0].key, key(1, 0));
        }
        assert!(steps <= bound as u64, "the long prompt starves");
    }
}

#[test]
fn two_that_fit_alone_but_not_together_both_end() {
    let mut random = Seeded::new(6);
    let mut bench = Bench::new(10, 2, 64, 64);
    let prompts: Vec<_> = (0..2).map(|_index| prompt_of(&mut random, 20)).collect();
    for (request, prompt) in (0..).zip(&prompts) {
        bench.add(start(key(request, 0), prompt, 600));
    }
    bench.run_to_end();
    for (request, prompt) in (0..).zip(&prompts) {
        assert_eq!(bench.done[&key(request, 0)], solo(prompt, 600));
    }
    assert!(bench.scheduler.stats().preemptions_total < 12);
}

#[test]
fn a_sequence_as_long_as_the_pool_ends() {
    let mut random = Seeded::new(7);
    let prompt = prompt_of(&mut random, 255);
    let mut bench = Bench::new(4, 2, 64, 64);
    for request in 0..3 {
        bench.add(start(key(request, 0), &prompt, 1));
    }
    bench.run_to_end();
    assert_eq!(bench.done.len(), 3);
}

fn random_start(random: &mut Seeded, stems: &[Vec<u32>], request: u64) -> Vec<SequenceStart> {
    let stem = &stems[random.below(stems.len())];
    let mut prompt = stem[..random.below(stem.len())].to_vec();
    let own = 1 + random.below(30);
    prompt.extend(prompt_of(random, own));
    let room = 8 * PAGE_TOKENS - prompt.len();
    let generated = 1 + random.below(room.min(150));
    let choices = if random.one_in(4) { 3 } else { 1 };
    (0..choices)
        .map(|choice| start(key(request, choice), &prompt, generated))
        .collect()
}

/// Any interleaving of arrivals, cancellations and preemptions on a pool that is too small
/// gives every sequence what it generates alone.
#[test]
fn schedules_do_not_change_results() {
    for seed in 0..40 {
        let mut random = Seeded::new(seed);
        let pages = 8 + random.below(12);
        let slots = 1 + random.below(6);
        let batch = 1 + random.below(100);
        let chunk = [1, 7, 64, 1000][random.below(4)];
        let drafting = [Drafting::Never, Drafting::Adaptive, Drafting::Eager][random.below(3)];
        let bench = Bench::new(u32::try_from(pages).unwrap(), slots, batch, chunk);
        let mut bench = bench.drafting(drafting);
        let stems: Vec<_> = (0..3).map(|_stem| prompt_of(&mut random, 200)).collect();
        let mut expected = BTreeMap::new();
        let mut requests = 0;
        for step in 0..300 {
            if random.one_in(12) {
                requests += 1;
                for start in random_start(&mut random, &stems, requests) {
                    let generated = start.tokens_max - start.prompt_count;
                    expected.insert(start.key, (start.tokens.clone(), generated));
                    bench.add(start);
                }
            }
            if let Some(key) = bench.open.keys().nth(random.below(40)).copied() {
                if random.one_in(3) {
                    bench.cancel(key);
                } else {
                    bench.scheduler.preempt(key);
                }
            }
            drop(bench.step());
            bench.scheduler.audit().unwrap_or_else(|error| {
                panic!("seed {seed}, step {step}: {error}");
            });
        }
        bench.run_to_end();
        for (key, tokens) in &bench.done {
            let (prompt, generated) = &expected[key];
            assert_eq!(*tokens, solo(prompt, *generated), "seed {seed}, {key:?}");
        }
    }
}

/// Holds steps beside answers to so many rows, at least 16.
fn paced(rows: u64) -> Pace {
    let mut pace = Pace::default();
    let work = StepWork { rows, keys: rows };
    let took = std::time::Duration::from_millis(50);
    pace.learn(work, StepKind::Mixed, took);
    pace
}

#[test]
fn prompts_take_less_of_a_step_in_which_answers_wait() {
    let mut bench = Bench::new(64, 4, 200, usize::MAX);
    bench.scheduler.set_pace(paced(40));
    bench.add(start(key(1, 0), &[3; 150], 30));
    assert_eq!(bench.step().rows().len(), 150, "nobody waits yet");
    bench.add(start(key(2, 0), &[7; 300], 5));
    assert_eq!(
        bench.step().rows().len(),
        40,
        "one answer and 39 of the prompt"
    );
    bench.cancel(key(1, 0));
    assert_eq!(bench.step().rows().len(), 200, "nobody waits any more");
    bench.run_to_end();
}

#[test]
fn many_answers_do_not_keep_prompts_from_advancing() {
    let mut bench = Bench::new(64, 20, 200, usize::MAX);
    bench.scheduler.set_pace(paced(16));
    for request in 0..18 {
        bench.add(start(key(request, 0), &[3, 1, 4], 40));
    }
    drop(bench.step());
    bench.add(start(key(99, 0), &[7; 100], 5));
    assert_eq!(bench.step().rows().len(), 18 + 8);
    bench.run_to_end();
}
