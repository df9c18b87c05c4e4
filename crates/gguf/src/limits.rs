//! Bounds on what a file may claim. They are far above every published model and far below
//! what would make parsing slow: each count is also held against the bytes that are left.

/// Metadata entries. Published files have fewer than a hundred.
pub const METADATA_ENTRIES_MAX: u64 = 1 << 16;
/// Bytes of a metadata key; the format says at most `2^16 - 1`.
pub const KEY_BYTES_MAX: u64 = (1 << 16) - 1;
/// Bytes of one string value. The longest in use are whole tokenizer descriptions.
pub const STRING_BYTES_MAX: u64 = 64 << 20;
/// Elements of one array. The longest in use are merge lists of half a million entries.
pub const ARRAY_ELEMENTS_MAX: u64 = 1 << 24;
/// Arrays within arrays; the format allows any depth and nobody uses two.
pub const ARRAY_DEPTH_MAX: u32 = 4;

/// Tensors. The largest published mixtures have some thousands.
pub const TENSORS_MAX: u64 = 1 << 17;
/// Bytes of a tensor name; the format says 64, some writers are built with 128.
pub const TENSOR_NAME_BYTES_MAX: u64 = 128;
/// Dimensions of a tensor, as in ggml.
pub const RANK_MAX: u32 = 4;
/// One dimension of a tensor.
pub const DIMENSION_MAX: u64 = 1 << 40;
/// `general.alignment`.
pub const ALIGNMENT_MAX: u32 = 1 << 20;
/// Alignment of a file that does not say, from the format.
pub const ALIGNMENT_DEFAULT: u32 = 32;

const _: () = assert!(ALIGNMENT_DEFAULT <= ALIGNMENT_MAX);
const _: () = assert!(TENSOR_NAME_BYTES_MAX <= STRING_BYTES_MAX);
const _: () = assert!(KEY_BYTES_MAX <= STRING_BYTES_MAX);
