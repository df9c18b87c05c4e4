//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as
//! easy as 1, 2, 3" (2011): noise as a function of a key and a counter, without a state.

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// Golden ratio and square root of three, less one, in 32 bits.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: u32 = 10;

/// High and low half of a product.
fn multiply(left: u32, right: u32) -> (u32, u32) {
    let product = u64::from(left) * u64::from(right);
    let low = u32::try_from(product & u64::from(u32::MAX)).unwrap_or_default();
    let high = u32::try_from(product >> 32).unwrap_or_default();
    (high, low)
}

/// One block of noise.
pub(super) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let (high0, low0) = multiply(MULTIPLIERS[0], c0);
        let (high1, low1) = multiply(MULTIPLIERS[1], c2);
        (c0, c1, c2, c3) = (high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// A number in [0, 1) with 53 random bits, for one draw.
pub(super) fn uniform(seed: u64, choice: u16, position: u64) -> f64 {
    let halves = |value: u64| {
        let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default();
        let high = u32::try_from(value >> 32).unwrap_or_default();
        [low, high]
    };
    let [low, high] = halves(position);
    // The last word tells streams of one position apart; drawing a token is stream 0.
    let [first, second, _, _] = philox([low, high, u32::from(choice), 0], halves(seed));
    let bits = u64::from(first) << 21 | u64::from(second >> 11);
    // Exact: 53 bits fit the significand.
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
