use expect_test::{Expect, expect};

use super::*;

fn check(body: &str, read: impl Fn(&Object<'_>) -> Result<String, Refusal>, expected: &Expect) {
    let answer = Object::from_body(body.as_bytes()).and_then(|body| read(&body));
    expected.assert_eq(&match answer {
        Ok(value) => value,
        Err(refusal) => format!("{:?}: {refusal}", refusal.param()),
    });
}

fn number(body: &Object<'_>) -> Result<String, Refusal> {
    let field = body.required("x")?;
    field.number(&(0.0..=2.0)).map(|value| format!("{value:?}"))
}

fn integer(body: &Object<'_>) -> Result<String, Refusal> {
    let field = body.required("x")?;
    field.integer(&(0..=100)).map(|value| value.to_string())
}

#[test]
fn a_body_is_an_object() {
    let keys = |body: &Object<'_>| Ok(format!("{:?}", body.entries));
    check("", keys, &expect!["None: the body must be a JSON object"]);
    check("[]", keys, &expect!["None: the body must be a JSON object"]);
    check("  {} ", keys, &expect!["[]"]);
    check(
        "{\"a\":1} x",
        keys,
        &expect!["None: the body is not valid JSON: trailing characters at line 1 column 9"],
    );
    check(
        "{\"a\":1",
        keys,
        &expect![
            "None: the body is not valid JSON: EOF while parsing an object at line 1 column 6"
        ],
    );
    check(
        "{\"a\":\"\u{e4}",
        keys,
        &expect![[
            r#"Some("a"): the body is not valid JSON: EOF while parsing a string at line 1 column 8"#
        ]],
    );
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let error = Object::from_body(b"{\"a\":\"\xff\"}").unwrap_err();
    expect![[r#"Invalid { param: Some("a"), message: "the body is not valid JSON: invalid unicode code point at line 1 column 7" }"#]]
        .assert_eq(&format!("{error:?}"));
}

#[test]
fn numbers_outside_their_range_name_field_and_range() {
    check("{\"x\":1.5}", number, &expect!["1.5"]);
    check("{\"x\":2}", number, &expect!["2.0"]);
    check(
        "{\"x\":-1}",
        number,
        &expect![[r#"Some("x"): 'x' must be between 0 and 2, not -1"#]],
    );
    check(
        "{\"x\":1e400}",
        number,
        &expect![[r#"Some("x"): 'x' must be between 0 and 2, not 1e400"#]],
    );
    check(
        "{\"x\":\"1\"}",
        number,
        &expect![[r#"Some("x"): 'x' must be a number, not a string"#]],
    );
    check(
        "{\"x\":NaN}",
        number,
        &expect![[r#"Some("x"): the body is not valid JSON: expected value at line 1 column 6"#]],
    );
    check(
        "{\"x\":-Infinity}",
        number,
        &expect![[r#"Some("x"): the body is not valid JSON: invalid number at line 1 column 7"#]],
    );
    check(
        "{\"x\":null}",
        number,
        &expect![[r#"Some("x"): 'x' is missing"#]],
    );
}

#[test]
fn integers_may_be_written_as_floats_but_must_be_whole() {
    check("{\"x\":7}", integer, &expect!["7"]);
    check("{\"x\":7.0}", integer, &expect!["7"]);
    check("{\"x\":1e2}", integer, &expect!["100"]);
    check(
        "{\"x\":7.5}",
        integer,
        &expect![[r#"Some("x"): 'x' must be an integer, not 7.5"#]],
    );
    check(
        "{\"x\":-1}",
        integer,
        &expect![[r#"Some("x"): 'x' must be between 0 and 100, not -1"#]],
    );
    check(
        "{\"x\":1e300}",
        integer,
        &expect![[r#"Some("x"): 'x' is out of range, not 1e300"#]],
    );
    check(
        "{\"x\":true}",
        integer,
        &expect![[r#"Some("x"): 'x' must be an integer, not a boolean"#]],
    );
}

#[test]
fn strings_are_decoded_and_half_surrogates_refused() {
    let text = |body: &Object<'_>| body.required("x")?.text();
    check(
        r#"{"x":"a\u00e4\n"}"#,
        text,
        &expect![[r#"
        aä
    "#]],
    );
    check(
        r#"{"x":"\ud800"}"#,
        text,
        &expect![[
            r#"Some("x"): 'x' is not a valid string (unexpected end of hex escape at line 1 column 8), not "\ud800""#
        ]],
    );
    check(
        r#"{"x":[]}"#,
        text,
        &expect![[r#"Some("x"): 'x' must be a string, not a list"#]],
    );
}

#[test]
fn lists_are_bounded_and_their_elements_have_paths() {
    let list = |body: &Object<'_>| {
        let list = body.required("x")?.list(2)?;
        let texts: Result<Vec<String>, Refusal> = list.iter().map(|e| e.text()).collect();
        Ok(format!("{:?}", texts?))
    };
    check(r#"{"x":["a","b"]}"#, list, &expect![[r#"["a", "b"]"#]]);
    check(
        r#"{"x":["a",{}]}"#,
        list,
        &expect![[r#"Some("x[1]"): 'x[1]' must be a string, not an object"#]],
    );
    check(
        r#"{"x":["a","b","c"]}"#,
        list,
        &expect![[r#"Some("x"): 'x' must not have more than 2 elements"#]],
    );
    let ids = |body: &Object<'_>| Ok(format!("{:?}", body.required("x")?.token_ids(3)?));
    check(
        r#"{"x":[1,2.0]}"#,
        ids,
        &expect!["[TokenId(1), TokenId(2)]"],
    );
    check(
        r#"{"x":[1,-2]}"#,
        ids,
        &expect![[r#"Some("x[1]"): 'x[1]' must be between 0 and 4294967295, not -2"#]],
    );
    check(
        r#"{"x":[1,2,3,4]}"#,
        ids,
        &expect![[r#"Some("x"): 'x' must not have more than 3 elements"#]],
    );
}

#[test]
fn of_a_repeated_key_the_last_value_counts() {
    check(r#"{"x":1,"x":2}"#, number, &expect!["2.0"]);
}

#[test]
fn two_names_of_one_field_may_agree_but_not_differ() {
    let either = |body: &Object<'_>| {
        let field = body.field_of(&["new", "old"])?;
        Ok(field.map_or_else(String::new, |field| field.json().to_owned()))
    };
    check(r#"{"old":3}"#, either, &expect!["3"]);
    check(r#"{"old":3,"new":3}"#, either, &expect!["3"]);
    check(r#"{"old":3,"new":null}"#, either, &expect!["3"]);
    check(
        r#"{"old":3,"new":4}"#,
        either,
        &expect![[r#"Some("old"): 'old' contradicts 'new', another name of it"#]],
    );
}

#[test]
fn objects_are_bounded_also_when_keys_repeat() {
    let refusal = |key: &dyn Fn(usize) -> String| {
        let entries: Vec<String> = (0..=OBJECT_KEYS_MAX).map(key).collect();
        let body = format!("{{{}}}", entries.join(","));
        Object::from_body(body.as_bytes()).unwrap_err().to_string()
    };
    let distinct = refusal(&|index| format!("\"k{index}\":0"));
    let repeated = refusal(&|_index| "\"k\":0".to_owned());
    for message in [distinct, repeated] {
        assert!(
            message.contains("more than 256 keys in one object"),
            "{message}"
        );
    }
}

#[test]
fn values_that_are_handed_on_are_checked_to_their_depth() {
    let checked = |body: &Object<'_>| body.required("x")?.check().map(|()| "sound".to_owned());
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    check(
        r#"{"x":{"a":[1,-2.5e3,"b",null,true]}}"#,
        checked,
        &expect!["sound"],
    );
    check(&nested(64), checked, &expect!["sound"]);
    check(
        &nested(65),
        checked,
        &expect![[
            r#"Some("x"): 'x' cannot be read: nested more than 64 levels deep at line 1 column 66"#
        ]],
    );
    check(
        r#"{"x":{"a":1e400}}"#,
        checked,
        &expect![[r#"Some("x"): 'x' cannot be read: number out of range at line 1 column 10"#]],
    );
    check(
        r#"{"x":["\udc00"]}"#,
        checked,
        &expect![[
            r#"Some("x"): 'x' cannot be read: lone leading surrogate in hex escape at line 1 column 8"#
        ]],
    );
    // What nobody reads may be as deep as it likes.
    check(
        &format!(
            "{{\"x\":1,\"y\":{}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        ),
        number,
        &expect!["1.0"],
    );
}

#[test]
fn quotes_in_messages_are_short() {
    let long = format!("{{\"x\":{}}}", "9".repeat(5000));
    check(
        &long,
        number,
        &expect![[
            r#"Some("x"): 'x' must be between 0 and 2, not 9999999999999999999999999999999999999999…"#
        ]],
    );
    let key = format!("{{\"{}\":NaN}}", "k".repeat(5000));
    let empty = |_body: &Object<'_>| Ok(String::new());
    check(
        &key,
        empty,
        &expect![[
            r#"Some("kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"): the body is not valid JSON: expected value at line 1 column 5005"#
        ]],
    );
}
