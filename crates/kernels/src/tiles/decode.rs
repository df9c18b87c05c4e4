//! From the bytes of a strip back to codes and scales, in vectors of one lane per row.
//!
//! Vector operations stand in loops and arrays, never in closures: only `#[inline(always)]`
//! functions are sure to be compiled with a tier's instructions.

use super::GROUP_COLS;
use crate::Format;
use crate::activations::Operand;
use crate::simd::{LANES, Simd};

/// One group of a strip: 32 columns of 16 rows.
pub(crate) struct Group<S: Simd> {
    /// Vector `g` holds columns `4 * g..4 * g + 4`.
    pub(crate) codes: [S::Codes; 8],
    pub(crate) scales: Scales<S>,
}

/// Weight = (code - offset) * d (+ m).
pub(crate) struct Scales<S: Simd> {
    /// Of the first and the last 16 columns; formats with one scale per group use the first.
    pub(crate) d: [S::F; 2],
    /// Unused by formats without a minimum.
    pub(crate) m: S::F,
}

/// How wide the codes are, and what their planes look like.
pub(crate) trait CodeWidth {
    /// Bits of a code.
    const BITS: u32;
    /// Bytes of the planes of one group.
    const BYTES: usize;

    fn unpack<S: Simd>(simd: S, planes: &[u8]) -> [S::Codes; 8];

    /// Rows that a tier multiplies with one vector of codes at a time.
    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        if Self::BITS == 8 {
            S::ROWS_OF_BYTES
        } else {
            S::ROWS
        }
    }

    /// [`Simd::dot`] with codes of this width.
    fn dot<S: Simd, const N: usize, const R: usize>(
        simd: S,
        codes: &[S::Codes; N],
        rows: [Operand<'_, N>; R],
        centred: bool,
    ) -> [S::I; R];
}

pub(crate) struct Bits4;
pub(crate) struct Bits5;
pub(crate) struct Bits6;
pub(crate) struct Bits8;

/// The 64 bytes of vector `index`.
#[inline(always)]
fn vector(planes: &[u8], index: usize) -> &[u8; 64] {
    &planes.as_chunks().0[index]
}

/// The dot product of a width: a constant that a trait names cannot be an argument.
macro_rules! width_dot {
    ($bits:literal) => {
        #[inline(always)]
        fn dot<S: Simd, const N: usize, const R: usize>(
            simd: S,
            codes: &[S::Codes; N],
            rows: [Operand<'_, N>; R],
            centred: bool,
        ) -> [S::I; R] {
            simd.dot::<$bits, N, R>(codes, rows, centred)
        }
    };
}

/// Vectors whose low four bits come from 256 bytes of nibbles.
#[inline(always)]
fn nibbles<S: Simd>(simd: S, planes: &[u8]) -> [S::Codes; 8] {
    let mut codes = [simd.load_codes(vector(planes, 0)); 8];
    for pair in 0..4 {
        let both = simd.load_codes(vector(planes, pair));
        codes[2 * pair] = simd.shift_right_and::<0>(both, 15);
        codes[2 * pair + 1] = simd.shift_right_and::<4>(both, 15);
    }
    codes
}

/// Adds the bits above the low four.
#[inline(always)]
fn join<S: Simd>(simd: S, low: [S::Codes; 8], high: [S::Codes; 8]) -> [S::Codes; 8] {
    let mut codes = low;
    for (code, high) in codes.iter_mut().zip(high) {
        *code = simd.or_codes(*code, high);
    }
    codes
}

impl CodeWidth for Bits4 {
    const BITS: u32 = 4;
    const BYTES: usize = 256;

    width_dot!(4);

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, planes: &[u8]) -> [S::Codes; 8] {
        nibbles(simd, planes)
    }
}

impl CodeWidth for Bits5 {
    const BITS: u32 = 5;
    const BYTES: usize = 64 + 256;

    width_dot!(5);

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, planes: &[u8]) -> [S::Codes; 8] {
        let plane = simd.load_codes(vector(planes, 0));
        let low = nibbles(simd, &planes[64..]);
        join(simd, low, simd.sixteens(plane))
    }
}

impl CodeWidth for Bits6 {
    const BITS: u32 = 6;
    const BYTES: usize = 128 + 256;

    width_dot!(6);

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, planes: &[u8]) -> [S::Codes; 8] {
        let low = nibbles(simd, &planes[128..]);
        let first = simd.load_codes(vector(planes, 0));
        let last = simd.load_codes(vector(planes, 1));
        let high = [
            simd.shift_left_and::<4>(first, 48),
            simd.shift_left_and::<2>(first, 48),
            simd.shift_right_and::<0>(first, 48),
            simd.shift_right_and::<2>(first, 48),
            simd.shift_left_and::<4>(last, 48),
            simd.shift_left_and::<2>(last, 48),
            simd.shift_right_and::<0>(last, 48),
            simd.shift_right_and::<2>(last, 48),
        ];
        join(simd, low, high)
    }
}

impl CodeWidth for Bits8 {
    const BITS: u32 = 8;
    const BYTES: usize = 512;

    width_dot!(8);

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, planes: &[u8]) -> [S::Codes; 8] {
        let mut codes = [simd.load_codes(vector(planes, 0)); 8];
        for (index, code) in codes.iter_mut().enumerate() {
            *code = simd.load_codes(vector(planes, index));
        }
        codes
    }
}

/// A quantized format: where its scales are and what its codes mean.
pub(crate) trait Decode {
    type Width: CodeWidth;
    const FORMAT: Format;
    /// Whether half of their range is subtracted from codes.
    const CENTRED: bool;
    /// What is subtracted from a code.
    const OFFSET: i32 = if Self::CENTRED {
        1 << (Self::Width::BITS - 1)
    } else {
        0
    };
    /// Whether there is a scale per 16 columns instead of one per 32.
    const HALVES: bool;
    /// Whether weights have a minimum.
    const HAS_MIN: bool;
    /// Bytes of the scales at the front of a block.
    const SCALE_BYTES: usize;
    /// Bytes of a block of 16 rows.
    const BLOCK_BYTES: usize = Self::FORMAT.block_bytes() * LANES;
    /// Groups per block.
    const GROUPS: usize = Self::FORMAT.block_elements() / GROUP_COLS;

    /// The scales of group `index` of a block, from the bytes of its scales and the f16
    /// vectors at their front.
    fn scales<S: Simd>(simd: S, block: &Block<'_, S>, index: usize) -> Scales<S>;

    /// The front of a block.
    #[inline(always)]
    fn block<S: Simd>(simd: S, bytes: &[u8]) -> Block<'_, S> {
        const {
            let planes = Self::GROUPS * Self::Width::BYTES;
            assert!(Self::SCALE_BYTES + planes == Self::BLOCK_BYTES);
        }
        let (scales, planes) = bytes.split_at(Self::SCALE_BYTES);
        let d = load_f16(simd, scales, 0);
        let m = if Self::HAS_MIN {
            load_f16(simd, scales, 2 * LANES)
        } else {
            d
        };
        Block {
            scales,
            planes,
            d,
            m,
        }
    }

    /// Group `index` of a block.
    #[inline(always)]
    fn group<S: Simd>(simd: S, block: &Block<'_, S>, index: usize) -> Group<S> {
        let planes = &block.planes[index * Self::Width::BYTES..][..Self::Width::BYTES];
        Group {
            codes: Self::Width::unpack(simd, planes),
            scales: Self::scales(simd, block, index),
        }
    }
}

/// A block of 16 rows, with what its groups share.
pub(crate) struct Block<'a, S: Simd> {
    scales: &'a [u8],
    planes: &'a [u8],
    d: S::F,
    /// `m` or `dmin`; unused by formats without a minimum.
    m: S::F,
}

/// The 16 values of `N` bytes each at `bytes[at..]`.
#[inline(always)]
fn lanes_at<const N: usize>(bytes: &[u8], at: usize) -> &[[u8; N]; LANES] {
    let (values, _) = bytes[at..][..N * LANES].as_chunks();
    &values.as_chunks().0[0]
}

/// One byte of every row, eight rows per integer.
#[inline(always)]
fn plane_at(bytes: &[u8], at: usize) -> [u64; 2] {
    let (eights, _) = bytes[at..][..LANES].as_chunks();
    [u64::from_le_bytes(eights[0]), u64::from_le_bytes(eights[1])]
}

/// The f16 vector at `bytes[at..]`, widened.
#[inline(always)]
pub(crate) fn load_f16<S: Simd>(simd: S, bytes: &[u8], at: usize) -> S::F {
    simd.load_f16(&lanes_at(bytes, at).map(u16::from_le_bytes))
}

/// The bf16 vector at `bytes[at..]`, widened.
#[inline(always)]
pub(crate) fn load_bf16<S: Simd>(simd: S, bytes: &[u8], at: usize) -> S::F {
    simd.load_bf16(&lanes_at(bytes, at).map(u16::from_le_bytes))
}

/// The f32 vector at `bytes[at..]`.
#[inline(always)]
pub(crate) fn load_f32<S: Simd>(simd: S, bytes: &[u8], at: usize) -> S::F {
    simd.load(&lanes_at(bytes, at).map(f32::from_le_bytes))
}

/// The scales of the block's only group.
#[inline(always)]
fn of_block<S: Simd>(_simd: S, block: &Block<'_, S>, _index: usize) -> Scales<S> {
    Scales {
        d: [block.d; 2],
        m: block.m,
    }
}

/// Group `index` under `d`, `dmin` and 6-bit scales. The bytes of a plane are put together
/// eight at a time, on units that the vectors leave idle.
#[inline(always)]
fn six_bit_scales<S: Simd>(simd: S, block: &Block<'_, S>, index: usize) -> Scales<S> {
    const NIBBLES: u64 = u64::from_le_bytes([15; 8]);
    const UPPER_BITS: u64 = u64::from_le_bytes([3; 8]);
    let low = plane_at(block.scales, 4 * LANES + index * LANES);
    let high = plane_at(block.scales, 12 * LANES + index / 2 * LANES);
    let (mut scale, mut min) = ([0; LANES], [0; LANES]);
    for half in 0..2 {
        let (low, high) = (low[half], high[half] >> (4 * (index % 2)));
        let bytes = low & NIBBLES | (high & UPPER_BITS) << 4;
        scale[8 * half..][..8].copy_from_slice(&bytes.to_le_bytes());
        let bytes = low >> 4 & NIBBLES | (high >> 2 & UPPER_BITS) << 4;
        min[8 * half..][..8].copy_from_slice(&bytes.to_le_bytes());
    }
    let scale = simd.int_to_float(simd.load_bytes(&scale));
    let min = simd.int_to_float(simd.load_bytes(&min));
    let d = simd.mul(block.d, scale);
    let m = simd.mul(block.m, min);
    Scales {
        d: [d; 2],
        m: simd.sub(simd.splat(-0.0), m),
    }
}

/// Groups `2 * index` and `2 * index + 1` of 16 columns under `d` and 8-bit scales.
#[inline(always)]
fn scale_per_half<S: Simd>(simd: S, block: &Block<'_, S>, index: usize) -> Scales<S> {
    let first = scale_of_half(simd, block.scales, 2 * index);
    let last = scale_of_half(simd, block.scales, 2 * index + 1);
    Scales {
        d: [simd.mul(block.d, first), simd.mul(block.d, last)],
        m: block.m,
    }
}

#[inline(always)]
fn scale_of_half<S: Simd>(simd: S, scales: &[u8], half: usize) -> S::F {
    let bytes = lanes_at(scales, 2 * LANES + half * LANES).map(i8::from_le_bytes);
    simd.int_to_float(simd.load_signed_bytes(&bytes))
}

/// Declares the type of a format: width of its codes, minimum (then codes are not centred), scale
/// per half, bytes and reader of its scales.
macro_rules! decode {
    ($name:ident: $width:ty, $min:literal, $halves:literal, $bytes:expr, $scales:ident) => {
        pub(crate) struct $name;

        impl Decode for $name {
            type Width = $width;
            const FORMAT: Format = Format::$name;
            const CENTRED: bool = !$min;
            const HAS_MIN: bool = $min;
            const HALVES: bool = $halves;
            const SCALE_BYTES: usize = $bytes;

            #[inline(always)]
            fn scales<S: Simd>(simd: S, block: &Block<'_, S>, index: usize) -> Scales<S> {
                $scales(simd, block, index)
            }
        }
    };
}

decode!(Q8_0: Bits8, false, false, 2 * LANES, of_block);
decode!(Q4_0: Bits4, false, false, 2 * LANES, of_block);
decode!(Q4_1: Bits4, true, false, 4 * LANES, of_block);
decode!(Q5_0: Bits5, false, false, 2 * LANES, of_block);
decode!(Q5_1: Bits5, true, false, 4 * LANES, of_block);
decode!(Q4K: Bits4, true, false, 16 * LANES, six_bit_scales);
decode!(Q5K: Bits5, true, false, 16 * LANES, six_bit_scales);
decode!(Q6K: Bits6, false, true, 18 * LANES, scale_per_half);
