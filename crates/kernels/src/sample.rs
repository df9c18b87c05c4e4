//! Seeded weights and activations for tests, extreme ones among them.

use crate::{Format, f32_to_f16};

/// Knuth's linear congruential generator; the upper bits are good enough for test data.
pub(crate) struct Sample(pub(crate) u64);

impl Sample {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// Uniform in -1..1.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.next() % (1 << 24)) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A scale as files have them, and sometimes zero, subnormal or large.
    fn scale(&mut self) -> u16 {
        match self.below(12) {
            0 => 0,
            1 => 0x8000,
            2 => 1,
            3 => 0x83ff,
            4 => f32_to_f16(100.0),
            _ => f32_to_f16(self.uniform() * 0.1),
        }
    }

    /// Rows of a tensor, as in the file.
    pub(crate) fn weights(&mut self, format: Format, rows: usize, cols: usize) -> Vec<u8> {
        let mut bytes = vec![0; rows * format.row_bytes(cols)];
        for block in bytes.chunks_exact_mut(format.block_bytes()) {
            self.fill(format, block);
        }
        bytes
    }

    fn fill(&mut self, format: Format, block: &mut [u8]) {
        match (format, block.len()) {
            (Format::F32, _) => block.copy_from_slice(&self.float().to_le_bytes()),
            (Format::F16, _) => block.copy_from_slice(&f32_to_f16(self.float()).to_le_bytes()),
            (Format::Bf16, _) => block.copy_from_slice(&self.float().to_le_bytes()[2..]),
            _ => self.fill_quantized(format, block),
        }
    }

    fn float(&mut self) -> f32 {
        match self.below(16) {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(1),
            3 => 60000.0,
            _ => self.uniform(),
        }
    }

    fn fill_quantized(&mut self, format: Format, block: &mut [u8]) {
        let style = self.below(8);
        for byte in &mut *block {
            *byte = match style {
                0 => 0,
                1 => 0xff,
                // The most negative codes of Q8_0.
                2 => 0x80,
                _ => self.next() as u8,
            };
        }
        let scales: &[usize] = match format {
            Format::Q6K => &[208],
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
            _ => &[0],
        };
        for at in scales {
            block[*at..][..2].copy_from_slice(&self.scale().to_le_bytes());
        }
    }

    /// Activations (rows, cols), some blocks zero, tiny or with one large value.
    pub(crate) fn activations(&mut self, rows: usize, cols: usize) -> Vec<f32> {
        let mut values = vec![0.0; rows * cols];
        for row in values.chunks_mut(cols.max(1)) {
            row.chunks_mut(32)
                .for_each(|block| self.fill_activations(block));
        }
        values
    }

    fn fill_activations(&mut self, block: &mut [f32]) {
        let style = self.below(8);
        for value in &mut *block {
            let random = self.uniform();
            *value = match style {
                0 => 0.0,
                1 => -0.0,
                2 => random * f32::MIN_POSITIVE,
                3 => 3.0f32.copysign(random),
                _ => random * 4.0,
            };
        }
        if style == 4 {
            let at = self.below(block.len());
            block[at] = -300.0;
        }
    }
}
