//! Activations as quantized weights see them: blocks of 32 signed bytes and one scale.

/// 32 consecutive activations of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationBlock {
    /// In -127..=127; the activation is about `code * scale`.
    pub codes: [i8; Self::ELEMENTS],
    /// The largest magnitude, divided by 127.
    pub scale: f32,
    /// Sums of the first and the last 16 codes.
    pub sums: [i32; 2],
}

/// Below this largest magnitude a block counts as zero: the factor `127 / largest` would not
/// be finite. No product of such a block could be seen in a result.
pub(crate) const LARGEST_MIN: f32 = f32::from_bits((127 - 120) << 23);

impl ActivationBlock {
    /// Activations per block.
    pub const ELEMENTS: usize = 32;

    fn new(values: &[f32; Self::ELEMENTS]) -> Self {
        // The order of magnitudes is the order of their bits, with NaN above infinity.
        let largest = values
            .iter()
            .fold(0, |bits, value| value.abs().to_bits().max(bits));
        let largest = f32::from_bits(largest);
        if largest < LARGEST_MIN {
            return Self {
                codes: [0; 32],
                scale: 0.0,
                sums: [0; 2],
            };
        }
        if !largest.is_finite() {
            return Self {
                codes: [0; 32],
                scale: f32::NAN,
                sums: [0; 2],
            };
        }
        let factor = 127.0 / largest;
        let codes =
            values.map(|value| (value * factor).round_ties_even().clamp(-127.0, 127.0) as i8);
        let (first, last) = codes.split_at(16);
        let sums = [first, last].map(|half| half.iter().map(|code| i32::from(*code)).sum());
        Self {
            codes,
            scale: largest / 127.0,
            sums,
        }
    }
}

/// The blocks of one row. A row that ends within a block goes on with zeros.
///
/// A block with a value that is not finite has the scale NaN, so that what is computed from
/// it is NaN as well.
#[must_use]
pub fn quantize_activation(row: &[f32]) -> Vec<ActivationBlock> {
    let (blocks, rest) = row.as_chunks();
    let mut quantized: Vec<_> = blocks.iter().map(ActivationBlock::new).collect();
    if !rest.is_empty() {
        let mut padded = [0.0; ActivationBlock::ELEMENTS];
        padded[..rest.len()].copy_from_slice(rest);
        quantized.push(ActivationBlock::new(&padded));
    }
    quantized
}
