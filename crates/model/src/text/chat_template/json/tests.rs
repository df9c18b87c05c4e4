use minijinja::Value;

use super::{JsonStyle, python_float, to_json, to_value};

fn check(json: &str, style: &JsonStyle, expected: &str) {
    let value = to_value(&serde_json::from_str(json).unwrap());
    assert_eq!(to_json(&value, style).unwrap(), expected);
}

/// What Python's `json.dumps` writes for the same value and options.
#[test]
fn json_is_written_as_python_writes_it() {
    let plain = JsonStyle::default();
    check(
        r#"{"b": 1, "a": [true, null, "x<y&'z'"]}"#,
        &plain,
        r#"{"b": 1, "a": [true, null, "x<y&'z'"]}"#,
    );
    check(
        r#"[[], {}, 1.0, -0.5, 1e20, 1e-7]"#,
        &plain,
        "[[], {}, 1.0, -0.5, 1e+20, 1e-07]",
    );
    check(
        r#""é\u0001\n\"\\🚀\u007f""#,
        &plain,
        "\"é\\u0001\\n\\\"\\\\🚀\u{7f}\"",
    );
    let ascii = JsonStyle {
        ensure_ascii: true,
        ..JsonStyle::default()
    };
    check(r#""é🚀""#, &ascii, r#""\u00e9\ud83d\ude80""#);
    let indented = JsonStyle {
        indent: Some(2),
        ..JsonStyle::default()
    };
    check(
        r#"{"a": [1, {}], "b": {}}"#,
        &indented,
        "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {}\n}",
    );
    let compact = JsonStyle {
        separators: Some((",".into(), ":".into())),
        sort_keys: true,
        ..JsonStyle::default()
    };
    check(r#"{"b": 1, "a": 2}"#, &compact, r#"{"a":2,"b":1}"#);
    check("18446744073709551615", &plain, "18446744073709551615");
}

#[test]
fn floats_are_laid_out_as_python_does() {
    let cases = [
        (0.1, "0.1"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.5e16, "1.5e+16"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-0.0, "-0.0"),
        (123456.789, "123456.789"),
        (1e100, "1e+100"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ];
    for (number, expected) in cases {
        assert_eq!(python_float(number), expected);
    }
}

#[test]
fn what_is_not_json_is_refused() {
    assert!(to_json(&Value::UNDEFINED, &JsonStyle::default()).is_err());
    assert!(to_json(&Value::from_bytes(vec![1]), &JsonStyle::default()).is_err());
    let mut nested = Value::from(1);
    for _ in 0..300 {
        nested = Value::from(vec![nested]);
    }
    assert!(to_json(&nested, &JsonStyle::default()).is_err());
}
