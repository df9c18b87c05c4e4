//! The backend that computes on this machine's processor: the specification of all others.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use relight_model::forward::{Costs, Model, Phase, Processor, Scratch};
use relight_protocol::StepCosts;

use crate::arena::{KvArena, SealedWeights};
use crate::backend::{Backend, BackendError, Batch};
use crate::pages::checksum::{PART_BYTES, page_checksum, part_checksum};
use crate::pages::{PageId, PageMemory, PageTable};

/// A model, its pages and the team of threads that computes.
#[derive(Debug)]
pub struct CpuBackend {
    model: Model<SealedWeights>,
    processor: Processor,
    kv: KvArena,
    scratch: Scratch,
    costs: Costs,
}

/// The time since the first call.
#[expect(
    clippy::disallowed_methods,
    reason = "a device times itself; nothing it computes depends on that"
)]
fn clock() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl CpuBackend {
    #[must_use]
    pub fn new(model: Model<SealedWeights>, processor: Processor, kv: KvArena) -> Self {
        let scratch = Scratch::new(&model).timed(clock);
        Self {
            model,
            processor,
            kv,
            scratch,
            costs: Costs::default(),
        }
    }

    /// The state of the first `tokens` tokens of a page as it lies there, zeros elsewhere.
    /// For tests that compare it.
    pub fn page_prefix(&self, page: PageId, tokens: usize) -> Vec<u8> {
        let layout = self.model.kv_layout();
        let mut pair = self.kv.page(page).to_vec();
        pair.resize(2 * layout.page_bytes(), 0);
        layout.copy_tokens(&mut pair, 0, 1, tokens);
        pair.split_off(layout.page_bytes())
    }

    /// Overwrites all pages that are not sealed. For tests that show that nothing stale is read.
    pub fn fill_pages(&mut self, byte: u8) {
        let page_bytes = self.model.kv_layout().page_bytes().max(1);
        let table = self.kv.table();
        let pages = self.kv.bytes_mut().chunks_exact_mut(page_bytes);
        for (page, bytes) in (0..).map(PageId).zip(pages) {
            if table.as_ref().is_none_or(|table| !table.is_sealed(page)) {
                bytes.fill(byte);
            }
        }
    }
}

impl PageMemory for CpuBackend {
    fn checksum(&self, page: PageId) -> u64 {
        let bytes = self.kv.page(page);
        let mut sums = vec![0; bytes.len().div_ceil(PART_BYTES)];
        let pool = &self.processor.pool;
        pool.for_each_chunk(&mut sums, 1, &|index, sum| {
            let part = bytes.chunks(PART_BYTES).nth(index);
            sum.fill(part_checksum(part.unwrap_or_default()));
        });
        page_checksum(&sums)
    }

    fn table(&self) -> Option<Arc<PageTable>> {
        self.kv.table()
    }
}

impl Backend for CpuBackend {
    fn vocabulary(&self) -> usize {
        self.model.spec().vocab_size
    }

    fn parameter_count(&self) -> u64 {
        self.model.spec().parameter_count()
    }

    fn costs(&self) -> StepCosts {
        let time = |phase| micros(self.costs.time(phase));
        StepCosts {
            embed_us: time(Phase::Embed),
            project_us: time(Phase::Project),
            attention_us: time(Phase::Attention),
            output_us: time(Phase::Output),
            feed_forward_us: time(Phase::FeedForward),
            head_us: time(Phase::Head),
            rest_us: 0,
            wait_us: micros(self.processor.pool.waited()),
            weight_bytes: self.costs.weight_bytes,
            kv_bytes: self.costs.kv_bytes,
        }
    }

    fn page_count(&self) -> u32 {
        let pages = self.kv.bytes() / self.model.kv_layout().page_bytes().max(1);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    fn forward(&mut self, batch: &Batch<'_>, logits: &mut Vec<f32>) -> Result<(), BackendError> {
        let Self {
            model,
            processor,
            kv,
            scratch,
            costs,
        } = self;
        for page in batch.pages_written() {
            kv.prepare(PageId(page));
        }
        model.forward(processor, batch, kv.bytes_mut(), scratch, logits)?;
        costs.add(&scratch.take_costs());
        Ok(())
    }

    /// The threads outlive a panic in a step, see `relight_kernels::Pool`, and the model is
    /// never written: only the buffers are made anew.
    fn reset(&mut self) {
        self.scratch = Scratch::new(&self.model).timed(clock);
    }

    fn copy_page_prefix(&mut self, source: PageId, target: PageId, tokens: usize) {
        let layout = self.model.kv_layout();
        self.kv.prepare(target);
        layout.copy_tokens(self.kv.bytes_mut(), source.0, target.0, tokens);
    }
}
