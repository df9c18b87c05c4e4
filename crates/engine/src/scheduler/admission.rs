//! Who gets in: by urgency, as slots and pages allow, with all that is there already.

use relight_protocol::limits::PAGE_TOKENS;

use super::{PageCopy, RESERVED_TOKENS, Scheduler};
use crate::pages::{PageHandle, PageMemory, PrefixHit};
use crate::sequence::Sequence;

/// A full step of waiting counts as much as this fraction of a step's rows: a long prompt
/// overtakes newer short ones after about `tokens / rows * AGEING_DIVISOR` steps.
pub(super) const AGEING_DIVISOR: usize = 8;

/// One page in this many stays free when a sequence is let in beside others.
const WATERMARK_DIVISOR: usize = 20;

enum Verdict {
    Admitted(Option<PageCopy>),
    /// Another sequence is computing what this one needs next.
    Deferred,
    /// Not enough pages.
    Short,
}

impl Scheduler {
    /// Lets waiting sequences in. The first one that lacks pages closes the door, so that
    /// smaller ones cannot keep it out for ever.
    pub(super) fn admit(&mut self, memory: &dyn PageMemory) -> Vec<PageCopy> {
        let mut copies = Vec::new();
        if self.waiting.is_empty() || self.running.len() >= self.config.slots {
            return copies;
        }
        self.order_waiting();
        let mut is_open = true;
        for mut sequence in std::mem::take(&mut self.waiting) {
            if !is_open || self.running.len() >= self.config.slots {
                self.waiting.push(sequence);
                continue;
            }
            match self.try_admit(&mut sequence, memory) {
                Verdict::Admitted(copy) => {
                    copies.extend(copy);
                    self.run(sequence);
                }
                Verdict::Deferred => self.waiting.push(sequence),
                Verdict::Short => {
                    self.waiting.push(sequence);
                    is_open = false;
                }
            }
        }
        copies
    }

    fn run(&mut self, sequence: Sequence) {
        let place = self
            .running
            .partition_point(|other| other.arrival < sequence.arrival);
        self.running.insert(place, sequence);
    }

    /// Tokens of work, less what waiting has earned; the least is served first.
    pub(super) fn urgency(&self, sequence: &Sequence) -> i64 {
        let per_step = (self.config.batch_rows / AGEING_DIVISOR).max(1);
        let waited = self.steps - sequence.arrival_step;
        let earned = waited.saturating_mul(per_step as u64);
        let remaining = i64::try_from(sequence.remaining()).unwrap_or(i64::MAX);
        remaining.saturating_sub_unsigned(earned)
    }

    /// Those whose pages were taken come first, oldest first, then the most urgent.
    fn order_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_cached_key(|sequence| {
            if sequence.was_preempted {
                (0, 0, sequence.arrival)
            } else {
                (1, self.urgency(sequence), sequence.arrival)
            }
        });
        self.waiting = waiting;
    }

    fn try_admit(&mut self, sequence: &mut Sequence, memory: &dyn PageMemory) -> Verdict {
        if self.must_wait(sequence) {
            return Verdict::Deferred;
        }
        let mut hit = self.store.lookup(
            sequence.tokens(),
            sequence.chain(),
            sequence.reusable(),
            memory,
        );
        self.prefer_sibling(sequence, &mut hit);
        let missing = sequence.missing_pages() - hit.pages.len();
        if !self.has_room(sequence, missing) {
            return Verdict::Short;
        }
        let computed = hit.tokens();
        // Let go of before pages are taken: in a full pool it may be the very page needed.
        let source = hit.partial.map(|(page, tokens)| (page.id(), tokens));
        let Some(fresh) = self.store.take(missing) else {
            return Verdict::Short;
        };
        self.note_hit(sequence, computed);
        let target = fresh.first().map(PageHandle::id);
        sequence.adopt(hit.pages, computed);
        sequence.add_pages(fresh);
        self.start_filling(sequence);
        let copy = source.zip(target);
        Verdict::Admitted(copy.map(|((source, tokens), target)| PageCopy {
            source,
            target,
            tokens,
        }))
    }

    /// Whether the next page that this sequence needs is being computed by another, or its
    /// prompt by another choice of the same request.
    fn must_wait(&self, sequence: &mut Sequence) -> bool {
        if let Some(name) = sequence.awaits
            && self.filling.contains_key(&name)
        {
            return true;
        }
        let known = self.store.matched_count(sequence.chain());
        sequence.awaits = sequence
            .chain()
            .get(known)
            .copied()
            .filter(|name| self.filling.contains_key(name));
        let shared = sequence.prompt_count().min(sequence.reusable());
        let is_sibling_behind = self
            .running
            .iter()
            .filter(|other| other.key.request == sequence.key.request)
            .any(|other| other.computed() < shared);
        sequence.awaits.is_some() || is_sibling_behind
    }

    /// Other choices of the same request hold the end of the prompt, which fills no page
    /// and so is not in the index.
    fn prefer_sibling(&self, sequence: &Sequence, hit: &mut PrefixHit) {
        let full = hit.pages.len() * PAGE_TOKENS;
        let wanted = sequence.tokens().get(..sequence.reusable());
        let wanted = wanted.unwrap_or_default();
        for other in &self.running {
            if other.key.request != sequence.key.request {
                continue;
            }
            let common = wanted
                .iter()
                .zip(other.computed_tokens())
                .take_while(|(left, right)| left == right)
                .count();
            let gain = common.saturating_sub(full).min(PAGE_TOKENS - 1);
            let page = other.pages().get(hit.pages.len());
            if full + gain > hit.tokens()
                && let Some(page) = page
            {
                hit.partial = Some((page.share(), gain));
            }
        }
    }

    /// Whether `missing` pages can be given without taking what others will need soon. The
    /// only sequence there is needs no reserve.
    fn has_room(&self, sequence: &Sequence, missing: usize) -> bool {
        if self.running.is_empty() {
            return true;
        }
        let reserved: usize = self
            .running
            .iter()
            .map(|other| other.reserved_pages(RESERVED_TOKENS))
            .sum();
        let wanted = missing + sequence.reserved_pages(RESERVED_TOKENS);
        let watermark = self.store.total_count().div_ceil(WATERMARK_DIVISOR);
        wanted + reserved + watermark <= self.store.available_count()
    }

    fn note_hit(&mut self, sequence: &Sequence, tokens: usize) {
        if !sequence.was_preempted {
            let prompt_tokens = tokens.min(sequence.prompt_count());
            self.hits.push((sequence.key, prompt_tokens));
        }
    }

    fn start_filling(&mut self, sequence: &Sequence) {
        let known = sequence.computed() / PAGE_TOKENS;
        for name in sequence.chain().iter().skip(known) {
            self.filling.entry(*name).or_insert(sequence.key);
        }
    }
}
