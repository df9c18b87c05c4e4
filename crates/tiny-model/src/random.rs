//! Seeded numbers: the same seed gives the same file on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// A stream of its own for each name, so that changing one tensor's format leaves the
    /// others as they were. The name is mixed in with FNV-1a.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { state: seed ^ hash }
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.bits().to_le_bytes();
            chunk
                .iter_mut()
                .zip(drawn)
                .for_each(|(byte, drawn)| *byte = drawn);
        }
        bytes
    }

    /// A whole number from `low` to `high`, both included.
    pub(crate) fn whole(&mut self, low: u8, high: u8) -> u8 {
        let span = u64::from(high - low) + 1;
        let offset = self.bits() % span;
        low + u8::try_from(offset).unwrap_or(0)
    }

    /// In `[low, high)`, from 24 random bits.
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.bits() >> 40) as f32 / 16_777_216.0;
        low + unit * (high - low)
    }

    /// 1 or -1.
    pub(crate) fn sign(&mut self) -> f32 {
        if self.bits() & 1 == 0 { 1.0 } else { -1.0 }
    }
}
