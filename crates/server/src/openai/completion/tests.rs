use expect_test::{Expect, expect};

use super::*;

fn check(body: &str, expected: &Expect) {
    let mut seeds = 0..;
    expected.assert_eq(
        &match completion_call(body.as_bytes(), || seeds.next().unwrap()) {
            Ok(call) => call
                .requests
                .iter()
                .map(|request| {
                    let Request {
                        prompt,
                        choices,
                        logprobs,
                        echo,
                        ..
                    } = request;
                    let seed = request.sampling.seed;
                    format!(
                        "{prompt:?} n {choices} seed {seed} logprobs {logprobs:?} echo {echo}\n"
                    )
                })
                .collect(),
            Err(refusal) => format!("{}: {refusal}", refusal.param().unwrap_or("-")),
        },
    );
}

#[test]
fn a_prompt_is_text_or_tokens_or_several_of_them() {
    check(
        r#"{"prompt":"a"}"#,
        &expect![[r#"
        Text("a") n 1 seed 0 logprobs None echo false
    "#]],
    );
    check(
        r#"{"prompt":["a","b"],"n":2}"#,
        &expect![[r#"
        Text("a") n 2 seed 0 logprobs None echo false
        Text("b") n 2 seed 1 logprobs None echo false
    "#]],
    );
    check(
        r#"{"prompt":[1,2]}"#,
        &expect![[r#"
        Tokens([TokenId(1), TokenId(2)]) n 1 seed 0 logprobs None echo false
    "#]],
    );
    check(
        r#"{"prompt":[[1,2],[3]],"seed":9}"#,
        &expect![[r#"
        Tokens([TokenId(1), TokenId(2)]) n 1 seed 9 logprobs None echo false
        Tokens([TokenId(3)]) n 1 seed 9 logprobs None echo false
    "#]],
    );
    check(
        r#"{"prompt":["a",[3]]}"#,
        &expect![[r#"
        Text("a") n 1 seed 0 logprobs None echo false
        Tokens([TokenId(3)]) n 1 seed 1 logprobs None echo false
    "#]],
    );
}

#[test]
fn prompts_that_are_none_are_refused() {
    check("{}", &expect!["prompt: 'prompt' is missing"]);
    check(
        r#"{"prompt":[]}"#,
        &expect!["prompt: 'prompt' must not be empty"],
    );
    check(
        r#"{"prompt":[[]]}"#,
        &expect!["prompt[0]: 'prompt[0]' must not be empty"],
    );
    check(
        r#"{"prompt":7}"#,
        &expect![
            "prompt: 'prompt' must be a string, a list of strings, or a list of token ids, not a number"
        ],
    );
    check(
        r#"{"prompt":[1,"a"]}"#,
        &expect!["prompt[1]: 'prompt[1]' must be an integer, not a string"],
    );
    check(
        r#"{"prompt":["a",{}]}"#,
        &expect!["prompt[1]: 'prompt[1]' must be a string, not an object"],
    );
    check(
        r#"{"prompt":[-1]}"#,
        &expect!["prompt[0]: 'prompt[0]' must be between 0 and 4294967295, not -1"],
    );
    check(
        &format!(r#"{{"prompt":[{}"a"]}}"#, r#""a","#.repeat(PROMPTS_MAX)),
        &expect!["prompt: 'prompt' must not have more than 64 elements"],
    );
}

#[test]
fn prompts_above_the_limit_are_refused_with_both_numbers() {
    let body = format!(r#"{{"prompt":"{}"}}"#, "a".repeat(PROMPT_BYTES_MAX + 1));
    check(
        &body,
        &expect!["prompt: 'prompt' has 8388609 bytes, the limit is 8388608"],
    );
}

#[test]
fn logprobs_are_a_number_here() {
    check(
        r#"{"prompt":"a","logprobs":5}"#,
        &expect![[r#"
        Text("a") n 1 seed 0 logprobs Some(5) echo false
    "#]],
    );
    check(
        r#"{"prompt":"a","logprobs":false}"#,
        &expect![[r#"
        Text("a") n 1 seed 0 logprobs None echo false
    "#]],
    );
    check(
        r#"{"prompt":"a","logprobs":true}"#,
        &expect!["logprobs: 'logprobs' must be an integer, not a boolean"],
    );
    check(
        r#"{"prompt":"a","logprobs":21}"#,
        &expect!["logprobs: 'logprobs' must be between 0 and 20, not 21"],
    );
    check(
        r#"{"prompt":"a","logprobs":1,"echo":true,"max_tokens":1}"#,
        &expect!["logprobs: 'logprobs' of an echoed prompt are not supported by this server"],
    );
    check(
        r#"{"prompt":"a","echo":true}"#,
        &expect![[r#"
        Text("a") n 1 seed 0 logprobs None echo true
    "#]],
    );
}

#[test]
fn candidates_beyond_the_choices_are_refused() {
    check(
        r#"{"prompt":"a","best_of":2,"n":2}"#,
        &expect![[r#"
        Text("a") n 2 seed 0 logprobs None echo false
    "#]],
    );
    check(
        r#"{"prompt":"a","best_of":3,"n":2}"#,
        &expect!["best_of: 'best_of' above 'n' is not supported by this server: 3"],
    );
    check(
        r#"{"prompt":"a","best_of":1,"n":2}"#,
        &expect!["best_of: 'best_of' must not be below 'n', which is 2, not 1"],
    );
    check(
        r#"{"prompt":"a","suffix":"b"}"#,
        &expect![[r#"suffix: 'suffix' is not supported by this server: "b""#]],
    );
    check(
        r#"{"prompt":"a","suffix":""}"#,
        &expect![[r#"
        Text("a") n 1 seed 0 logprobs None echo false
    "#]],
    );
}
