//! Whole files: round trips, truncation and damage.

use proptest::prelude::*;

use super::Gguf;
use crate::error::GgufError;
use crate::ggml_type::GgmlType;
use crate::header::Header;
use crate::value::{Array, Value, ValueType};
use crate::writer::{self, Writer};

mod hostile;

fn refuse(file: &[u8]) -> GgufError {
    Gguf::parse(file).unwrap_err()
}

/// A small file with every kind of value and tensors of three types.
fn sample() -> Vec<u8> {
    Writer::new(3)
        .metadata("general.architecture", "llama")
        .metadata("u8", 1_u8)
        .metadata("i64", -5_i64)
        .metadata("f64", 0.25_f64)
        .metadata("bool", true)
        .metadata("words", ["one", "two"].as_slice())
        .metadata("scores", vec![1.0_f32, 2.0])
        .metadata(
            "nested",
            writer::Value::Array(
                ValueType::Array,
                vec![vec![1_u16].into(), vec![2_u16, 3].into()],
            ),
        )
        .tensor("a", &[4, 2], GgmlType::F32, &[1; 32])
        .tensor("b", &[32], GgmlType::Q8_0, &[2; 34])
        .tensor("c", &[3, 1, 1, 2], GgmlType::F16, &[3; 12])
        .finish()
}

#[test]
fn a_written_file_reads_back() {
    let file = sample();
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.alignment(), 32);
    assert_eq!(gguf.architecture(), Ok("llama"));
    assert_eq!(gguf.metadata().len(), 8);
    assert_eq!(gguf.metadata().get("u8"), Some(Value::U8(1)));
    assert_eq!(gguf.metadata().get("i64"), Some(Value::I64(-5)));
    assert_eq!(gguf.metadata().get("f64"), Some(Value::F64(0.25)));
    let nested = gguf.metadata().array("nested").unwrap();
    let lengths: Vec<usize> = nested
        .iter()
        .filter_map(|inner| inner.as_array().as_ref().map(Array::len))
        .collect();
    assert_eq!(lengths, [1, 2]);

    let shapes: Vec<_> = gguf
        .tensors()
        .iter()
        .map(|tensor| {
            (
                tensor.name(),
                tensor.columns(),
                tensor.rows(),
                tensor.ggml_type(),
            )
        })
        .collect();
    let expected = [
        ("a", 4, 2, GgmlType::F32),
        ("b", 32, 1, GgmlType::Q8_0),
        ("c", 3, 2, GgmlType::F16),
    ];
    assert_eq!(shapes, expected);
    for (name, byte, bytes) in [("a", 1, 32), ("b", 2, 34), ("c", 3, 12)] {
        let tensor = gguf.tensor(name).unwrap();
        assert_eq!(gguf.data(tensor), vec![byte; bytes]);
        assert_eq!(tensor.data_range().start % 32, 0);
    }
    assert!(gguf.tensor("d").is_none());
}

#[test]
fn the_stated_alignment_is_used() {
    let file = Writer::new(2)
        .alignment(256)
        .tensor("a", &[1], GgmlType::I8, &[1])
        .tensor("b", &[1], GgmlType::I8, &[2])
        .finish();
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!((gguf.version(), gguf.alignment()), (2, 256));
    let starts: Vec<usize> = gguf
        .tensors()
        .iter()
        .map(|t| t.data_range().start)
        .collect();
    assert_eq!(starts, [256, 512]);
}

#[test]
fn every_type_has_the_number_it_is_found_by() {
    for ggml_type in GgmlType::ALL {
        assert_eq!(GgmlType::from_number(ggml_type.number()), Some(ggml_type));
        let block = ggml_type.block_elements() as u64;
        assert_eq!(
            ggml_type.row_bytes(block * 3),
            Some(ggml_type.block_bytes() as u64 * 3)
        );
        if block > 1 {
            assert_eq!(ggml_type.row_bytes(block * 3 + 1), None);
        }
    }
    let withdrawn = [4, 5, 31, 32, 33, 36, 37, 38, 42, u32::MAX];
    assert!(
        withdrawn
            .into_iter()
            .all(|number| GgmlType::from_number(number).is_none())
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let file = sample();
    let last_data_end = 12 + Gguf::parse(&file).unwrap().tensor("c").unwrap().data.start;
    for length in 0..last_data_end {
        let error = refuse(&file[..length]);
        assert!(
            matches!(
                error,
                GgufError::Truncated { .. } | GgufError::TensorOutOfFile { .. }
            ),
            "{length}: {error}"
        );
    }
    for length in last_data_end..file.len() {
        assert!(
            Gguf::parse(&file[..length]).is_ok(),
            "padding may be missing"
        );
    }
}

#[test]
fn the_table_can_be_read_from_a_prefix() {
    let file = sample();
    let whole = Gguf::parse(&file).unwrap();
    let data_start = whole.tensor("a").unwrap().data_range().start;
    let header = Header::parse(&file[..data_start], file.len()).unwrap();
    assert_eq!(header.tensors(), whole.tensors());
    assert_eq!(header.metadata().len(), whole.metadata().len());
    let cut = Header::parse(&file[..100], file.len());
    assert!(matches!(cut, Err(GgufError::Truncated { .. })));
    let error = Header::parse(&file[..data_start], data_start).unwrap_err();
    assert!(
        matches!(error, GgufError::TensorOutOfFile { .. }),
        "{error}"
    );
}

/// Reads everything that a file offers.
fn visit(gguf: &Gguf<'_>, file_bytes: usize) {
    for (key, value) in gguf.metadata().iter() {
        if let Some(array) = value.as_array() {
            assert_eq!(array.iter().count(), array.len(), "{key}");
        }
    }
    for tensor in gguf.tensors() {
        let range = tensor.data_range();
        assert!(range.end <= file_bytes);
        assert_eq!(gguf.data(tensor).len(), range.len());
        let row_bytes = tensor.ggml_type().row_bytes(tensor.columns()).unwrap();
        assert_eq!(row_bytes * tensor.rows(), range.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_damaged_file_is_refused_or_consistent(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = sample();
        for (index, byte) in damage {
            let position = index.index(file.len());
            file[position] = byte;
        }
        if let Ok(gguf) = Gguf::parse(&file) {
            visit(&gguf, file.len());
        }
    }

    #[test]
    fn arbitrary_metadata_reads_back(
        words in prop::collection::vec(".{0,20}", 0..20),
        numbers in prop::collection::vec(any::<u64>(), 0..20),
        version in 2_u32..=3,
    ) {
        let file = Writer::new(version)
            .metadata("words", words.clone())
            .metadata("numbers", numbers.clone())
            .finish();
        let gguf = Gguf::parse(&file).unwrap();
        let read: Vec<&str> = gguf.metadata().strings("words").unwrap().collect();
        prop_assert_eq!(read, words);
        let read: Vec<u64> = gguf.metadata().array("numbers").unwrap().iter()
            .filter_map(|value| u64::try_from(value.as_integer()?).ok())
            .collect();
        prop_assert_eq!(read, numbers);
    }
}
