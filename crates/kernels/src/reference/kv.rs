//! Keys and values as pages keep them with `KvType::Q8_0`: signed bytes, and one scale for a
//! head's elements of one token.

use super::LARGEST_MIN;

/// The elements of one head and token, rounded to codes of its keys or of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct KvCodes {
    /// In -127..=127; the element is about `code * scale`.
    pub codes: Vec<i8>,
    /// The largest magnitude, divided by 127.
    pub scale: f32,
}

/// Rounds the elements of one head and token as activations are rounded, except that there is
/// one block whatever its length.
///
/// Elements that are not all finite have the scale NaN. As keys they would vanish in the
/// softmax, so the values of that head and token are then kept with the scale NaN as well.
#[must_use]
pub fn quantize_kv(elements: &[f32]) -> KvCodes {
    let magnitudes = elements.iter().map(|element| element.abs().to_bits());
    let largest = f32::from_bits(magnitudes.max().unwrap_or(0));
    let zeros = vec![0; elements.len()];
    if largest < LARGEST_MIN {
        return KvCodes {
            codes: zeros,
            scale: 0.0,
        };
    }
    if !largest.is_finite() {
        return KvCodes {
            codes: zeros,
            scale: f32::NAN,
        };
    }
    let factor = 127.0 / largest;
    let code = |element: &f32| (element * factor).round_ties_even().clamp(-127.0, 127.0) as i8;
    KvCodes {
        codes: elements.iter().map(code).collect(),
        scale: largest / 127.0,
    }
}
