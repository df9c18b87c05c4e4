//! One choice of a request as the scheduler sees it: tokens, how many of them are computed,
//! and the pages that hold their state.

use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{ChoiceIndex, RequestId};

use crate::drafter::Drafter;
use crate::pages::{ChainHash, PageHandle, PageMemory, PageStore};

/// Names a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceKey {
    pub request: RequestId,
    pub choice: ChoiceIndex,
}

/// What a sequence starts from.
#[derive(Clone, Debug)]
pub struct SequenceStart {
    pub key: SequenceKey,
    /// The prompt, then what an earlier engine had generated. Not empty.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the prompt.
    pub prompt_count: usize,
    /// Length at which the sequence has ended; above `tokens.len()` and within the pool.
    pub tokens_max: usize,
}

/// Pages for this many tokens.
pub(crate) fn pages_for(tokens: usize) -> usize {
    tokens.div_ceil(PAGE_TOKENS)
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) key: SequenceKey,
    tokens: Vec<u32>,
    prompt_count: usize,
    tokens_max: usize,
    /// Tokens whose state is in `pages`, confirmed.
    computed: usize,
    pages: Vec<PageHandle>,
    /// Tokens that are computed with the last one in case they are drawn next.
    drafts: Vec<u32>,
    /// Once it was asked for a guess.
    drafter: Option<Drafter>,
    /// Names of the full pages of `tokens`.
    chain: Vec<ChainHash>,
    root: ChainHash,
    /// Order of arrival; older sequences take pages from younger ones.
    pub(crate) arrival: u64,
    /// Step count at arrival.
    pub(crate) arrival_step: u64,
    /// Whether it has held pages before.
    pub(crate) was_preempted: bool,
    /// The page that another sequence is about to seal and this one waits for.
    pub(crate) awaits: Option<ChainHash>,
}

impl Sequence {
    pub(crate) fn new(start: SequenceStart, root: ChainHash) -> Self {
        assert!(!start.tokens.is_empty(), "a sequence needs a first token");
        assert!(start.tokens_max > start.tokens.len(), "nothing to generate");
        let mut sequence = Self {
            key: start.key,
            tokens: start.tokens,
            prompt_count: start.prompt_count,
            tokens_max: start.tokens_max,
            computed: 0,
            pages: Vec::new(),
            drafts: Vec::new(),
            drafter: None,
            chain: Vec::new(),
            root,
            arrival: 0,
            arrival_step: 0,
            was_preempted: false,
            awaits: None,
        };
        sequence.extend_chain();
        sequence
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(crate) fn computed_tokens(&self) -> &[u32] {
        self.tokens.get(..self.computed).unwrap_or_default()
    }

    pub(crate) fn prompt_count(&self) -> usize {
        self.prompt_count
    }

    pub(crate) fn computed(&self) -> usize {
        self.computed
    }

    pub(crate) fn chain(&self) -> &[ChainHash] {
        &self.chain
    }

    pub(crate) fn pages(&self) -> &[PageHandle] {
        &self.pages
    }

    /// Tokens still to be computed before the next one can be drawn.
    pub(crate) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Tokens that may be taken from other sequences: all but the last, whose logits are
    /// needed.
    pub(crate) fn reusable(&self) -> usize {
        self.tokens.len() - 1
    }

    /// Pages that are missing for the tokens there are.
    pub(crate) fn missing_pages(&self) -> usize {
        pages_for(self.tokens.len()).saturating_sub(self.pages.len())
    }

    /// Pages that are missing for `count` drafts.
    pub(crate) fn missing_pages_for(&self, count: usize) -> usize {
        pages_for(self.tokens.len() + count).saturating_sub(self.pages.len())
    }

    /// Drafts for which there is room in the pages it has.
    pub(crate) fn room_in_pages(&self) -> usize {
        (self.pages.len() * PAGE_TOKENS).saturating_sub(self.tokens.len())
    }

    /// At most `count` tokens that may come next, each with the probability that it and all
    /// before it will; none that would come after the sequence's end, and not the last one,
    /// which nothing is drawn after.
    pub(crate) fn guess(&mut self, count: usize) -> Vec<(u32, f32)> {
        let count = count.min(self.tokens_max - self.tokens.len() - 1);
        let (tokens, end) = (&self.tokens, self.tokens_max);
        let drafter = &mut self.drafter;
        let drafter = drafter.get_or_insert_with(|| Drafter::new(tokens, end));
        drafter.draft(tokens, count)
    }

    pub(crate) fn drafts(&self) -> &[u32] {
        &self.drafts
    }

    /// There are pages for them.
    pub(crate) fn set_drafts(&mut self, drafts: Vec<u32>) {
        self.drafts = drafts;
    }

    /// Pages it may yet need within the next `ahead` tokens, beyond those it needs now.
    pub(crate) fn reserved_pages(&self, ahead: usize) -> usize {
        let end = (self.tokens.len() + ahead).min(self.tokens_max);
        let held = self.pages.len().max(pages_for(self.tokens.len()));
        pages_for(end).saturating_sub(held)
    }

    pub(crate) fn add_pages(&mut self, pages: Vec<PageHandle>) {
        self.pages.extend(pages);
    }

    /// Starts over from pages that are there: `pages` wholly, and `computed` tokens in all
    /// once the planned copy into the page after them is done.
    pub(crate) fn adopt(&mut self, pages: Vec<PageHandle>, computed: usize) {
        assert!(self.pages.is_empty(), "adopting over pages held");
        assert!(computed <= self.reusable(), "the last token has no logits");
        self.pages = pages;
        self.computed = computed;
    }

    /// Gives all pages back; everything will be computed again.
    pub(crate) fn release(&mut self) {
        self.pages.clear();
        self.drafts.clear();
        self.computed = 0;
        self.was_preempted = true;
    }

    /// Appends a token that was drawn.
    pub(crate) fn push(&mut self, token: u32) {
        assert_eq!(self.remaining(), 0, "drawn before its prefix was computed");
        self.tokens.push(token);
        if let Some(drafter) = &mut self.drafter {
            drafter.observe(&self.tokens);
        }
        self.extend_chain();
    }

    /// Notes that the next `count` tokens are computed and lets `store` remember the pages
    /// which that has filled. Returns the names of those pages.
    pub(crate) fn confirm(
        &mut self,
        count: usize,
        store: &mut PageStore,
        memory: &dyn PageMemory,
    ) -> Vec<ChainHash> {
        let before = self.computed / PAGE_TOKENS;
        self.computed += count;
        assert!(self.computed <= self.tokens.len());
        let after = self.computed / PAGE_TOKENS;
        let (page_tokens, _rest) = self.tokens.as_chunks::<PAGE_TOKENS>();
        let mut sealed = Vec::new();
        let mut parent = self.parent_of(before);
        let filled = page_tokens.iter().zip(&self.chain).zip(&mut self.pages);
        for ((tokens, name), page) in filled.take(after).skip(before) {
            store.seal(parent, tokens, page, memory);
            parent = *name;
            sealed.push(*name);
        }
        sealed
    }

    /// Whether the pages that the next `count` tokens go to belong to it alone.
    pub(crate) fn may_write(&self, count: usize) -> bool {
        let end = pages_for(self.computed + count);
        let touched = self.pages.get(self.computed / PAGE_TOKENS..end);
        touched.is_some_and(|pages| pages.iter().all(PageHandle::is_exclusive))
    }

    fn parent_of(&self, page_index: usize) -> ChainHash {
        let before = page_index.checked_sub(1);
        let name = before.and_then(|index| self.chain.get(index));
        name.copied().unwrap_or(self.root)
    }

    fn extend_chain(&mut self) {
        let (page_tokens, _rest) = self.tokens.as_chunks::<PAGE_TOKENS>();
        let mut parent = self.parent_of(self.chain.len());
        for tokens in page_tokens.iter().skip(self.chain.len()) {
            parent = parent.next(tokens);
            self.chain.push(parent);
        }
    }
}
