use expect_test::{Expect, expect};

use super::*;
use crate::field::Object;

fn check(messages: &str, expected: &Expect) {
    let body = format!("{{\"messages\":{messages}}}");
    let json = Object::from_body(body.as_bytes())
        .and_then(|body| messages_json(&body.required("messages")?));
    expected.assert_eq(&match json {
        Ok(json) => json,
        Err(refusal) => format!("{}: {refusal}", refusal.param().unwrap_or("-")),
    });
}

#[test]
fn what_clients_send_comes_out_in_one_shape() {
    check(
        r#"[{"role":"user","content":"hi"}]"#,
        &expect![[r#"[{"role":"user","content":"hi"}]"#]],
    );
    check(
        r#"[{"content":"a\nb\u0000","role":"developer"},{"role":"system","content":"c"}]"#,
        &expect![[r#"[{"role":"system","content":"a\nb\u0000"},{"role":"system","content":"c"}]"#]],
    );
    check(
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]}]"#,
        &expect![[r#"[{"role":"user","content":"a\nb"}]"#]],
    );
    check(
        r#"[{"role":"user","content":"a","name":"bob","x":{"y":[1, 2.50]}}]"#,
        &expect![[r#"[{"role":"user","content":"a","name":"bob","x":{"y":[1, 2.50]}}]"#]],
    );
    check(
        r#"[{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"7"}]"#,
        &expect![[
            r#"[{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]},{"role":"tool","content":"7","tool_call_id":"c"}]"#
        ]],
    );
    check(
        r#"[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]"#,
        &expect![[
            r#"[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]"#
        ]],
    );
}

#[test]
fn errors_name_the_message_and_the_key() {
    check(
        r#""hello""#,
        &expect!["messages: 'messages' must be a list, not a string"],
    );
    check("[]", &expect!["messages: 'messages' must not be empty"]);
    check(
        r#"["hello"]"#,
        &expect!["messages[0]: 'messages[0]' must be an object, not a string"],
    );
    check(
        r#"[{"content":"a"}]"#,
        &expect!["messages[0].role: 'messages[0].role' is missing"],
    );
    check(
        r#"[{"role":"user","content":"a"},{"role":"robot","content":"a"}]"#,
        &expect![[
            r#"messages[1].role: 'messages[1].role' must be one of system, developer, user, assistant, tool, function, not "robot""#
        ]],
    );
    check(
        r#"[{"role":"user"}]"#,
        &expect!["messages[0].content: 'messages[0].content' is missing"],
    );
    check(
        r#"[{"role":"user","content":null}]"#,
        &expect!["messages[0].content: 'messages[0].content' is missing"],
    );
    check(
        r#"[{"role":"assistant","content":null}]"#,
        &expect!["messages[0].content: 'messages[0].content' is missing"],
    );
    check(
        r#"[{"role":"user","content":5}]"#,
        &expect![
            "messages[0].content: 'messages[0].content' must be a string or a list of parts, not a number"
        ],
    );
}

#[test]
fn parts_that_are_not_text_are_refused_by_their_place() {
    check(
        r#"[{"role":"user","content":[{"text":"a"}]}]"#,
        &expect!["messages[0].content[0].type: 'messages[0].content[0].type' is missing"],
    );
    check(
        r#"[{"role":"user","content":[{"type":"text","text":7}]}]"#,
        &expect![
            "messages[0].content[0].text: 'messages[0].content[0].text' must be a string, not a number"
        ],
    );
    check(
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]}]"#,
        &expect![[
            r#"messages[0].content[1].type: 'messages[0].content[1].type' is "image_url", but this model reads text only"#
        ]],
    );
    check(
        r#"[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]"#,
        &expect![[
            r#"messages[0].content[0].type: 'messages[0].content[0].type' is "input_audio", but this model reads text only"#
        ]],
    );
    check(
        r#"[{"role":"user","content":"\ud800"}]"#,
        &expect![[
            r#"messages[0].content: 'messages[0].content' is not a valid string (unexpected end of hex escape at line 1 column 8), not "\ud800""#
        ]],
    );
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    check(
        &format!(r#"[{{"role":"user","content":"a","x":{deep}}}]"#),
        &expect![
            "messages[0].x: 'messages[0].x' cannot be read: nested more than 64 levels deep at line 1 column 65"
        ],
    );
}

#[test]
fn more_messages_than_the_limit_are_refused() {
    let message = r#"{"role":"user","content":"a"}"#;
    check(
        &format!("[{}{message}]", format!("{message},").repeat(MESSAGES_MAX)),
        &expect!["messages: 'messages' must not have more than 4096 elements"],
    );
}
