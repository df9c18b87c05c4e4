//! The only source of chance in a run: everything follows from its seed.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: mix(!seed) }
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Uniform enough in `0..bound`; 0 if the bound is.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// As `below`, for places in memory.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    /// In `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `times` calls.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of a few values.
    pub(crate) fn one_of<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let index = self.index(others.len() + 1);
        index
            .checked_sub(1)
            .and_then(|index| others.get(index).copied())
            .unwrap_or(first)
    }
}

/// Spreads every input bit over the whole word.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
