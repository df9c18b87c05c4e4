use expect_test::{Expect, expect};

use super::*;

const MESSAGES: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

fn check(fields: &str, expected: &Expect) {
    let body = format!("{{{MESSAGES}{fields}}}");
    expected.assert_eq(&match chat_call(body.as_bytes(), || 7) {
        Ok(call) => {
            let request = &call.requests[0];
            format!(
                "{:?}\n{:?}\nlogprobs {:?}",
                call.reply, request.prompt, request.logprobs
            )
        }
        Err(refusal) => format!("{}: {refusal}", refusal.param().unwrap_or("-")),
    });
}

#[test]
fn the_least_body_is_messages() {
    check(
        "",
        &expect![[r#"
        Reply { stream: false, include_usage: false, model: None }
        Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: true, continue_final_message: false })
        logprobs None"#]],
    );
    let refusal = chat_call(b"{}", || 7).unwrap_err();
    expect![[r#"Invalid { param: Some("messages"), message: "'messages' is missing" }"#]]
        .assert_eq(&format!("{refusal:?}"));
}

#[test]
fn unknown_fields_are_ignored() {
    check(
        r#","separate_reasoning":true,"user":"u","metadata":{"a":1},"store":false"#,
        &expect![[r#"
            Reply { stream: false, include_usage: false, model: None }
            Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: true, continue_final_message: false })
            logprobs None"#]],
    );
}

#[test]
fn the_form_of_the_answer_is_read() {
    check(
        r#","stream":true,"stream_options":{"include_usage":true},"model":"a/b""#,
        &expect![[r#"
            Reply { stream: true, include_usage: true, model: Some("a/b") }
            Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: true, continue_final_message: false })
            logprobs None"#]],
    );
    check(
        r#","stream":"yes""#,
        &expect!["stream: 'stream' must be a boolean, not a string"],
    );
    check(
        r#","stream_options":[]"#,
        &expect!["stream_options: 'stream_options' must be an object, not a list"],
    );
    check(
        r#","model":7"#,
        &expect!["model: 'model' must be a string, not a number"],
    );
}

#[test]
fn template_variables_are_collected() {
    check(
        r#","chat_template_kwargs":{"a":[1],"enable_thinking":false},"enable_thinking":true,"reasoning_effort":"low""#,
        &expect![[r#"
            Reply { stream: false, include_usage: false, model: None }
            Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: Some("{\"a\":[1],\"enable_thinking\":false,\"reasoning_effort\":\"low\"}"), add_generation_prompt: true, continue_final_message: false })
            logprobs None"#]],
    );
    check(
        r#","template_vars":{"a":1},"enable_thinking":true"#,
        &expect![[r#"
            Reply { stream: false, include_usage: false, model: None }
            Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: Some("{\"a\":1,\"enable_thinking\":true}"), add_generation_prompt: true, continue_final_message: false })
            logprobs None"#]],
    );
    check(
        r#","chat_template_kwargs":7"#,
        &expect!["chat_template_kwargs: 'chat_template_kwargs' must be an object, not a number"],
    );
}

#[test]
fn the_last_message_may_be_continued() {
    check(
        r#","continue_final_message":true"#,
        &expect![[r#"
        Reply { stream: false, include_usage: false, model: None }
        Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: false, continue_final_message: true })
        logprobs None"#]],
    );
    check(
        r#","continue_final_message":true,"add_generation_prompt":true"#,
        &expect![
            "continue_final_message: 'continue_final_message' and 'add_generation_prompt' exclude each other"
        ],
    );
    check(
        r#","add_generation_prompt":false"#,
        &expect![[r#"
        Reply { stream: false, include_usage: false, model: None }
        Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: false, continue_final_message: false })
        logprobs None"#]],
    );
}

#[test]
fn logprobs_need_their_switch() {
    check(
        r#","logprobs":true"#,
        &expect![[r#"
        Reply { stream: false, include_usage: false, model: None }
        Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: true, continue_final_message: false })
        logprobs Some(0)"#]],
    );
    check(
        r#","logprobs":true,"top_logprobs":5"#,
        &expect![[r#"
        Reply { stream: false, include_usage: false, model: None }
        Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: true, continue_final_message: false })
        logprobs Some(5)"#]],
    );
    check(
        r#","top_logprobs":5"#,
        &expect!["top_logprobs: 'top_logprobs' needs 'logprobs' to be true"],
    );
    check(
        r#","top_logprobs":0,"logprobs":false"#,
        &expect![[r#"
        Reply { stream: false, include_usage: false, model: None }
        Chat(Chat { messages_json: "[{\"role\":\"user\",\"content\":\"hi\"}]", tools_json: None, variables_json: None, add_generation_prompt: true, continue_final_message: false })
        logprobs None"#]],
    );
    check(
        r#","logprobs":true,"top_logprobs":21"#,
        &expect!["top_logprobs: 'top_logprobs' must be between 0 and 20, not 21"],
    );
    check(
        r#","logprobs":3"#,
        &expect!["logprobs: 'logprobs' must be a boolean, not a number"],
    );
}
