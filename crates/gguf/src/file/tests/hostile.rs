//! One hand-made hostile file per limit, each refused with the offset at which it is wrong.

use super::{Gguf, refuse, sample};
use crate::error::{Counted, GgufError, Measured};
use crate::ggml_type::GgmlType;
use crate::limits::{
    ALIGNMENT_MAX, ARRAY_DEPTH_MAX, ARRAY_ELEMENTS_MAX, DIMENSION_MAX, KEY_BYTES_MAX,
    METADATA_ENTRIES_MAX, RANK_MAX, STRING_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSORS_MAX,
};
use crate::value::ValueType;
use crate::writer::Writer;

/// Bytes of magic, version and both counts.
const HEADER_BYTES: usize = 24;

fn header(tensors: u64, entries: u64) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend(tensors.to_le_bytes());
    file.extend(entries.to_le_bytes());
    file
}

fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

/// A file with one metadata entry `k` of a value type and these bytes.
fn entry(value_type: u32, value: &[u8]) -> Vec<u8> {
    let parts = [
        header(0, 1),
        string(b"k"),
        value_type.to_le_bytes().to_vec(),
        value.to_vec(),
    ];
    parts.concat()
}

/// An array value: element type, count and these bytes.
fn array(element: u32, count: u64, bytes: &[u8]) -> Vec<u8> {
    let head = [element.to_le_bytes().as_slice(), &count.to_le_bytes()].concat();
    [&head, bytes].concat()
}

/// The description of one tensor.
fn info(name: &str, dimensions: &[u64], number: u32, offset: u64) -> Vec<u8> {
    let mut bytes = string(name.as_bytes());
    bytes.extend(u32::try_from(dimensions.len()).unwrap().to_le_bytes());
    bytes.extend(
        dimensions
            .iter()
            .flat_map(|dimension| dimension.to_le_bytes()),
    );
    bytes.extend(number.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

/// A file of these tensors and `data` bytes after the padding.
fn tensors(infos: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut file = [header(infos.len() as u64, 0), infos.concat()].concat();
    file.resize(file.len().next_multiple_of(32) + data, 0);
    file
}

fn refuse_tensor(dimensions: &[u64], number: u32) -> GgufError {
    refuse(&tensors(&[info("t", dimensions, number, 0)], 64))
}

#[test]
fn an_empty_file_and_a_bad_magic_are_refused() {
    let empty = GgufError::Truncated {
        offset: 0,
        needed: 4,
        available: 0,
    };
    assert_eq!(refuse(b""), empty);
    assert_eq!(
        refuse(b"PK\x03\x04 and so on").to_string(),
        "not a GGUF file: byte 0 holds [50, 4b, 03, 04] instead of \"GGUF\""
    );
}

#[test]
fn big_endian_files_are_named_as_such() {
    let swapped = [b"GGUF".as_slice(), &3_u32.to_be_bytes(), &[0; 16]].concat();
    assert_eq!(refuse(&swapped), GgufError::BigEndian { offset: 4 });
    assert_eq!(
        refuse(b"FUGG\x00\x00\x00\x03"),
        GgufError::BigEndian { offset: 0 }
    );
}

#[test]
fn other_versions_are_refused() {
    for version in [0, 1, 4, u32::MAX] {
        let file = Writer::new(version).finish();
        let expected = GgufError::UnsupportedVersion {
            offset: 4,
            found: version,
        };
        assert_eq!(refuse(&file), expected);
    }
}

#[test]
fn a_file_of_37_bytes_is_refused_where_it_ends() {
    let error = refuse(&sample()[..37]);
    assert!(
        matches!(error, GgufError::Truncated { offset, .. } if offset <= 37),
        "{error}"
    );
}

#[test]
fn too_many_metadata_entries_are_refused() {
    let expected = GgufError::TooMany {
        counted: Counted::MetadataEntries,
        offset: 16,
        found: METADATA_ENTRIES_MAX + 1,
        limit: METADATA_ENTRIES_MAX,
    };
    assert_eq!(refuse(&header(0, METADATA_ENTRIES_MAX + 1)), expected);
}

#[test]
fn too_many_tensors_are_refused() {
    let expected = GgufError::TooMany {
        counted: Counted::Tensors,
        offset: 8,
        found: TENSORS_MAX + 1,
        limit: TENSORS_MAX,
    };
    assert_eq!(refuse(&header(TENSORS_MAX + 1, 0)), expected);
}

#[test]
fn counts_within_the_limits_that_the_file_cannot_hold_are_refused() {
    for file in [header(TENSORS_MAX, 0), header(0, METADATA_ENTRIES_MAX)] {
        let error = refuse(&file);
        assert!(
            matches!(
                error,
                GgufError::Truncated {
                    offset: HEADER_BYTES,
                    available: 0,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn an_over_long_key_is_refused_before_it_is_read() {
    let file = [
        header(0, 1),
        (KEY_BYTES_MAX + 1).to_le_bytes().to_vec(),
        vec![0; 16],
    ]
    .concat();
    let expected = GgufError::TooLong {
        measured: Measured::Key,
        offset: HEADER_BYTES,
        found: KEY_BYTES_MAX + 1,
        limit: KEY_BYTES_MAX,
    };
    assert_eq!(refuse(&file), expected);
}

#[test]
fn an_empty_key_is_refused() {
    let file = [header(0, 1), string(b""), vec![0; 32]].concat();
    let expected = GgufError::Empty {
        measured: Measured::Key,
        offset: HEADER_BYTES,
    };
    assert_eq!(refuse(&file), expected);
}

#[test]
fn keys_values_and_names_must_be_utf8() {
    let invalid = string(b"\xff");
    let key = [header(0, 1), invalid.clone(), vec![0; 32]].concat();
    let value = entry(ValueType::String.number(), &invalid);
    let name = [header(1, 0), invalid, vec![0; 64]].concat();
    let expected = |measured, offset| GgufError::InvalidUtf8 { measured, offset };
    assert_eq!(refuse(&key), expected(Measured::Key, 24));
    assert_eq!(refuse(&value), expected(Measured::StringValue, 37));
    assert_eq!(refuse(&name), expected(Measured::TensorName, 24));
}

#[test]
fn an_over_long_string_is_refused_before_it_is_read() {
    let file = entry(8, &(STRING_BYTES_MAX + 1).to_le_bytes());
    let expected = GgufError::TooLong {
        measured: Measured::StringValue,
        offset: 37,
        found: STRING_BYTES_MAX + 1,
        limit: STRING_BYTES_MAX,
    };
    assert_eq!(refuse(&file), expected);
}

#[test]
fn a_string_longer_than_the_file_is_refused() {
    let expected = GgufError::Truncated {
        offset: 45,
        needed: 1000,
        available: 0,
    };
    assert_eq!(refuse(&entry(8, &1000_u64.to_le_bytes())), expected);
}

#[test]
fn an_unknown_value_type_is_refused() {
    let expected = |offset| GgufError::UnknownValueType {
        offset,
        found: 13,
        limit: 12,
    };
    assert_eq!(refuse(&entry(13, &[0; 8])), expected(33));
    let array = array(13, 0, &[]);
    assert_eq!(refuse(&entry(9, &array)), expected(37));
}

#[test]
fn a_bool_that_is_neither_0_nor_1_is_refused() {
    let expected = |offset| GgufError::InvalidBool { offset, found: 2 };
    assert_eq!(refuse(&entry(7, &[2])), expected(37));
    let array = array(7, 2, &[1, 2]);
    assert_eq!(refuse(&entry(9, &array)), expected(50));
}

#[test]
fn an_array_above_the_limit_is_refused() {
    let array = array(0, ARRAY_ELEMENTS_MAX + 1, &[]);
    let expected = GgufError::TooMany {
        counted: Counted::ArrayElements,
        offset: 41,
        found: ARRAY_ELEMENTS_MAX + 1,
        limit: ARRAY_ELEMENTS_MAX,
    };
    assert_eq!(refuse(&entry(9, &array)), expected);
}

#[test]
fn an_array_that_the_file_cannot_hold_is_refused_for_every_element_type() {
    for element in ValueType::ALL {
        let array = array(element.number(), ARRAY_ELEMENTS_MAX, &[0; 16]);
        let error = refuse(&entry(9, &array));
        assert!(
            matches!(
                error,
                GgufError::Truncated {
                    offset: 49,
                    available: 16,
                    ..
                }
            ),
            "{element}: {error}"
        );
    }
}

/// An array of one array of one array ... of no bytes, `depth` deep.
fn nested(depth: u32) -> Vec<u8> {
    let mut array = Vec::new();
    for _ in 1..depth {
        array.extend(9_u32.to_le_bytes());
        array.extend(1_u64.to_le_bytes());
    }
    array.extend([0; 12]);
    entry(9, &array)
}

#[test]
fn arrays_nest_up_to_the_limit() {
    assert!(Gguf::parse(&nested(ARRAY_DEPTH_MAX)).is_ok());
    for depth in [ARRAY_DEPTH_MAX + 1, 10_000] {
        let expected = GgufError::NestedTooDeep {
            offset: 37 + 12 * ARRAY_DEPTH_MAX as usize,
            limit: ARRAY_DEPTH_MAX,
        };
        assert_eq!(refuse(&nested(depth)), expected);
    }
}

#[test]
fn a_key_that_appears_twice_is_refused() {
    let file = Writer::new(3)
        .metadata("k", 1_u8)
        .metadata("k", 2_u8)
        .finish();
    let expected = GgufError::DuplicateKey {
        offset: 38,
        key: "k".to_owned(),
    };
    assert_eq!(refuse(&file), expected);
}

#[test]
fn alignments_that_are_zero_odd_small_or_huge_are_refused() {
    for found in [0, 1, 4, 24, 33, ALIGNMENT_MAX * 2, u32::MAX] {
        let file = Writer::new(3).metadata("general.alignment", found).finish();
        let expected = GgufError::BadAlignment {
            offset: HEADER_BYTES,
            found,
            limit: ALIGNMENT_MAX,
        };
        assert_eq!(refuse(&file), expected);
    }
    let file = Writer::new(3).metadata("general.alignment", "32").finish();
    assert!(matches!(refuse(&file), GgufError::WrongType { .. }));
}

#[test]
fn a_tensor_name_must_be_short_and_not_empty() {
    let longest = "x".repeat(usize::try_from(TENSOR_NAME_BYTES_MAX).unwrap());
    assert!(Gguf::parse(&tensors(&[info(&longest, &[1], 24, 0)], 1)).is_ok());
    let longer = format!("{longest}x");
    let expected = GgufError::TooLong {
        measured: Measured::TensorName,
        offset: HEADER_BYTES,
        found: TENSOR_NAME_BYTES_MAX + 1,
        limit: TENSOR_NAME_BYTES_MAX,
    };
    assert_eq!(refuse(&tensors(&[info(&longer, &[1], 24, 0)], 1)), expected);
    let expected = GgufError::Empty {
        measured: Measured::TensorName,
        offset: HEADER_BYTES,
    };
    assert_eq!(refuse(&tensors(&[info("", &[1], 24, 0)], 1)), expected);
}

#[test]
fn a_tensor_name_that_appears_twice_is_refused() {
    let file = tensors(&[info("t", &[1], 24, 0), info("t", &[1], 24, 32)], 64);
    let expected = GgufError::DuplicateTensor {
        offset: 57,
        tensor: "t".to_owned(),
    };
    assert_eq!(refuse(&file), expected);
}

#[test]
fn a_tensor_has_one_to_four_dimensions() {
    let none = GgufError::NoDimensions {
        offset: 33,
        tensor: "t".to_owned(),
    };
    assert_eq!(refuse_tensor(&[], 24), none);
    let many = GgufError::TooMany {
        counted: Counted::Dimensions,
        offset: 33,
        found: 5,
        limit: RANK_MAX.into(),
    };
    assert_eq!(refuse_tensor(&[1; 5], 24), many);
}

#[test]
fn a_zero_dimension_is_refused() {
    let expected = GgufError::ZeroDimension {
        offset: 45,
        tensor: "t".to_owned(),
        dimension: 1,
    };
    assert_eq!(refuse_tensor(&[1, 0], 24), expected);
}

#[test]
fn a_dimension_above_the_limit_is_refused() {
    let expected = GgufError::OversizedDimension {
        offset: 37,
        tensor: "t".to_owned(),
        dimension: 0,
        found: DIMENSION_MAX + 1,
        limit: DIMENSION_MAX,
    };
    assert_eq!(refuse_tensor(&[DIMENSION_MAX + 1], 24), expected);
}

#[test]
fn dimensions_whose_product_wraps_are_refused() {
    let wrapping = [DIMENSION_MAX, DIMENSION_MAX, 1 << 4];
    for ggml_type in [GgmlType::I8, GgmlType::F32, GgmlType::IQ1_S] {
        let expected = GgufError::DimensionsOverflow {
            offset: 33,
            tensor: "t".to_owned(),
            dimensions: wrapping.to_vec(),
        };
        assert_eq!(refuse_tensor(&wrapping, ggml_type.number()), expected);
    }
}

#[test]
fn an_unknown_tensor_type_is_refused() {
    let expected = GgufError::UnknownTensorType {
        offset: 45,
        tensor: "t".to_owned(),
        found: 31,
    };
    assert_eq!(refuse_tensor(&[32], 31), expected);
}

#[test]
fn a_row_that_is_not_whole_blocks_is_refused() {
    assert_eq!(
        refuse_tensor(&[288, 2], GgmlType::Q4_K.number()).to_string(),
        "rows of tensor \"t\" have 288 elements (byte 33); its type Q4_K stores whole blocks of 256"
    );
}

#[test]
fn a_misaligned_offset_is_refused() {
    let expected = GgufError::MisalignedTensor {
        offset: 49,
        tensor: "t".to_owned(),
        found: 8,
        alignment: 32,
    };
    assert_eq!(refuse(&tensors(&[info("t", &[1], 24, 8)], 64)), expected);
}

#[test]
fn data_that_does_not_lie_inside_the_file_is_refused() {
    assert!(Gguf::parse(&tensors(&[info("t", &[32], 24, 32)], 64)).is_ok());
    for (elements, offset) in [(33, 32), (1, 64), (1, u64::MAX - 31), (DIMENSION_MAX, 0)] {
        let error = refuse(&tensors(&[info("t", &[elements], 24, offset)], 64));
        assert!(
            matches!(
                error,
                GgufError::TensorOutOfFile {
                    offset: 49,
                    limit: 128,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn overlapping_data_is_refused_in_any_order() {
    for (first, second) in [(0, 32), (32, 0), (0, 0)] {
        let infos = [info("a", &[64], 24, first), info("b", &[64], 24, second)];
        let error = refuse(&tensors(&infos, 128));
        assert!(
            matches!(error, GgufError::OverlappingTensors { .. }),
            "{error}"
        );
    }
    let infos = [info("a", &[32], 24, 32), info("b", &[32], 24, 0)];
    assert!(Gguf::parse(&tensors(&infos, 64)).is_ok());
}
