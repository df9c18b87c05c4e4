use expect_test::{Expect, expect};

use super::*;

fn check(fields: &str, expected: &Expect) {
    let body = format!("{{{fields}}}");
    let refused = Object::from_body(body.as_bytes()).and_then(|body| refuse_in_chat(&body));
    expected.assert_eq(&match refused {
        Ok(()) => "taken".to_owned(),
        Err(refusal) => format!("{refusal:?}"),
    });
}

#[test]
fn fields_that_ask_for_nothing_are_taken() {
    check(
        r#""tools":[],"tool_choice":"auto","response_format":{"type":"text"},"modalities":["text"],
        "json_schema":null,"grammar":"","typical_p":1.0,"mirostat":0,"skip_special_tokens":true,
        "top_n_sigma":-1,"use_beam_search":false,"bad_words":[],"structured_outputs":{},"best_of":1"#,
        &expect!["taken"],
    );
}

#[test]
fn fields_that_ask_for_something_are_refused_by_name() {
    check(
        r#""tools":[{"type":"function"}]"#,
        &expect![[
            r#"Unsupported { param: "tools", message: "'tools' is not supported by this server: [{\"type\":\"function\"}]" }"#
        ]],
    );
    check(
        r#""tool_choice":"required""#,
        &expect![[
            r#"Unsupported { param: "tool_choice", message: "'tool_choice' is not supported by this server: \"required\"" }"#
        ]],
    );
    check(
        r#""tool_choice":{"type":"function"}"#,
        &expect![[
            r#"Unsupported { param: "tool_choice", message: "'tool_choice' is not supported by this server: {\"type\":\"function\"}" }"#
        ]],
    );
    check(
        r#""response_format":{"type":"json_object"}"#,
        &expect![[
            r#"Unsupported { param: "response_format.type", message: "'response_format.type' is not supported by this server: \"json_object\"" }"#
        ]],
    );
    check(
        r#""response_format":{}"#,
        &expect![[
            r#"Invalid { param: Some("response_format.type"), message: "'response_format.type' is missing" }"#
        ]],
    );
    check(
        r#""response_format":"json""#,
        &expect![[
            r#"Invalid { param: Some("response_format"), message: "'response_format' must be an object, not a string" }"#
        ]],
    );
    check(
        r#""modalities":["text","audio"]"#,
        &expect![[
            r#"Unsupported { param: "modalities[1]", message: "'modalities[1]' is not supported by this server: \"audio\"" }"#
        ]],
    );
}

#[test]
fn constraints_and_samplers_that_are_not_there_are_refused() {
    check(
        r#""json_schema":{}"#,
        &expect![[
            r#"Unsupported { param: "json_schema", message: "'json_schema' is not supported by this server: {}" }"#
        ]],
    );
    check(
        r#""regex_pattern":"a+""#,
        &expect![[
            r#"Unsupported { param: "regex_pattern", message: "'regex_pattern' is not supported by this server: \"a+\"" }"#
        ]],
    );
    check(
        r#""typical_p":0.9"#,
        &expect![[
            r#"Unsupported { param: "typical_p", message: "'typical_p' is not supported by this server: 0.9" }"#
        ]],
    );
    check(
        r#""typical_p":"0.9""#,
        &expect![[
            r#"Unsupported { param: "typical_p", message: "'typical_p' is not supported by this server: \"0.9\"" }"#
        ]],
    );
    check(
        r#""skip_special_tokens":false"#,
        &expect![[
            r#"Unsupported { param: "skip_special_tokens", message: "'skip_special_tokens' is not supported by this server: false" }"#
        ]],
    );
    check(
        r#""xtc_probability":0.5"#,
        &expect![[
            r#"Unsupported { param: "xtc_probability", message: "'xtc_probability' is not supported by this server: 0.5" }"#
        ]],
    );
}

#[test]
fn the_documentation_lists_every_refused_field() {
    let documentation = include_str!("../../../../../docs/api.md");
    for (key, _neutral) in SHARED.iter().chain(CHAT).chain(COMPLETION) {
        let marked = format!("`{key}`");
        assert!(
            documentation.contains(&marked),
            "docs/api.md does not name {marked}"
        );
    }
}
