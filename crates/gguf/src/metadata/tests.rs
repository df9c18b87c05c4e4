//! Typed access to metadata.

use super::Optional;
use crate::Gguf;
use crate::error::GgufError;
use crate::value::{Kind, ValueType};
use crate::writer::{Value, Writer};

fn with(key: &str, value: impl Into<Value>) -> Vec<u8> {
    Writer::new(3).metadata(key, value).finish()
}

#[test]
fn an_integer_of_any_width_is_read_if_it_fits() {
    let values: [Value; 8] = [
        7_u8.into(),
        7_i8.into(),
        7_u16.into(),
        7_i16.into(),
        7_u32.into(),
        7_i32.into(),
        7_u64.into(),
        7_i64.into(),
    ];
    for value in values {
        let file = with("k", value);
        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.metadata().u32("k"), Ok(7));
        assert_eq!(gguf.metadata().u64("k"), Ok(7));
    }
}

#[test]
fn an_integer_that_does_not_fit_is_named_with_its_key() {
    let file = with("k", -1_i32);
    let gguf = Gguf::parse(&file).unwrap();
    let expected = GgufError::OutOfRange {
        key: "k".to_owned(),
        offset: 24,
        expected: ValueType::U32,
        found: -1,
    };
    assert_eq!(gguf.metadata().u32("k"), Err(expected));
}

#[test]
fn a_key_of_the_wrong_type_is_an_error_that_names_both_types() {
    let file = with("k", vec![1_u32]);
    let gguf = Gguf::parse(&file).unwrap();
    let error = gguf.metadata().str("k").unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata key \"k\" (byte 24) is array of u32 where string is expected"
    );
    for error in [
        gguf.metadata().u32("k").unwrap_err(),
        gguf.metadata().f32("k").unwrap_err(),
        gguf.metadata().bool("k").unwrap_err(),
        gguf.metadata().strings("k").unwrap_err(),
        gguf.metadata().f32s("k").unwrap_err(),
        gguf.metadata().bools("k").unwrap_err(),
    ] {
        assert!(
            matches!(
                error,
                GgufError::WrongType {
                    found: Kind::ArrayOf(ValueType::U32),
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn optional_forgives_absence_and_nothing_else() {
    let file = with("k", "text");
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(gguf.metadata().u32("absent").optional(), Ok(None));
    assert_eq!(gguf.metadata().str("k").optional(), Ok(Some("text")));
    assert!(gguf.metadata().u32("k").optional().is_err());
}

#[test]
fn array_iterators_know_their_length_and_give_every_element() {
    let file = Writer::new(2)
        .metadata("strings", ["a", "", "čž"].as_slice())
        .metadata("floats", vec![0.5_f32, -1.0])
        .metadata("bools", vec![true, false])
        .metadata("signed", vec![1_i32, 2])
        .finish();
    let gguf = Gguf::parse(&file).unwrap();
    let metadata = gguf.metadata();
    let strings = metadata.strings("strings").unwrap();
    assert_eq!(strings.len(), 3);
    assert_eq!(strings.collect::<Vec<_>>(), ["a", "", "čž"]);
    assert_eq!(
        metadata.f32s("floats").unwrap().collect::<Vec<_>>(),
        [0.5, -1.0]
    );
    assert_eq!(
        metadata.bools("bools").unwrap().collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(metadata.u32s("signed").unwrap().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(metadata.i32s("signed").unwrap().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn one_element_out_of_range_refuses_the_whole_array() {
    let file = with("k", vec![1_i64, 1 << 40]);
    let gguf = Gguf::parse(&file).unwrap();
    let error = gguf.metadata().i32s("k").unwrap_err();
    assert!(matches!(error, GgufError::OutOfRange { found, .. } if found == 1 << 40));
}
