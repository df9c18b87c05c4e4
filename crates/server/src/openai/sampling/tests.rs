use expect_test::{Expect, expect};

use super::*;

fn check(fields: &str, expected: &Expect) {
    let body = format!("{{{fields}}}");
    let read = Object::from_body(body.as_bytes()).and_then(|body| {
        let sampling = sampling(&body, || 77)?;
        Ok((sampling, stop_rules(&body)?, choices(&body)?))
    });
    expected.assert_eq(&match read {
        Ok((sampling, stop, choices)) => format!("{sampling:?}\n{stop:?}\nn {choices}"),
        Err(refusal) => format!("{}: {refusal}", refusal.param().unwrap_or("-")),
    });
}

#[test]
fn an_empty_body_samples_as_openai_documents_it() {
    check(
        "",
        &expect![[r#"
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, frequency_penalty: 0.0, presence_penalty: 0.0, logit_bias: [], seed: 77 }
        StopRules { max_tokens: None, min_tokens: 0, ignore_eos: false, strings: [], token_ids: [], include_stop: false }
        n 1"#]],
    );
}

#[test]
fn every_field_arrives() {
    check(
        r#""temperature":0.5,"top_k":40,"top_p":0.9,"min_p":0.05,"repetition_penalty":1.1,
        "frequency_penalty":-0.5,"presence_penalty":0.25,"logit_bias":{"7":-100,"0":2.5},"seed":5,
        "max_tokens":9,"min_tokens":2,"ignore_eos":true,"stop":["a","b"],"stop_token_ids":[3],
        "include_stop_str_in_output":true,"n":3"#,
        &expect![[r#"
            Sampling { temperature: 0.5, top_k: 40, top_p: 0.9, min_p: 0.05, repetition_penalty: 1.1, frequency_penalty: -0.5, presence_penalty: 0.25, logit_bias: [(TokenId(7), -100.0), (TokenId(0), 2.5)], seed: 5 }
            StopRules { max_tokens: Some(9), min_tokens: 2, ignore_eos: true, strings: ["a", "b"], token_ids: [TokenId(3)], include_stop: true }
            n 3"#]],
    );
}

#[test]
fn other_names_of_fields_are_known() {
    check(
        r#""rep_pen":1.2,"max_completion_tokens":8,"stop":"x","ban_eos_token":true,"top_k":-1"#,
        &expect![[r#"
            Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.2, frequency_penalty: 0.0, presence_penalty: 0.0, logit_bias: [], seed: 77 }
            StopRules { max_tokens: Some(8), min_tokens: 0, ignore_eos: true, strings: ["x"], token_ids: [], include_stop: false }
            n 1"#]],
    );
    check(
        r#""max_tokens":8,"max_completion_tokens":9"#,
        &expect![
            "max_tokens: 'max_tokens' contradicts 'max_completion_tokens', another name of it"
        ],
    );
}

#[test]
fn null_is_absence() {
    check(
        r#""temperature":null,"stop":null,"max_tokens":null,"logit_bias":null,"seed":null,"n":null"#,
        &expect![[r#"
            Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, frequency_penalty: 0.0, presence_penalty: 0.0, logit_bias: [], seed: 77 }
            StopRules { max_tokens: None, min_tokens: 0, ignore_eos: false, strings: [], token_ids: [], include_stop: false }
            n 1"#]],
    );
}

#[test]
fn temperatures_that_cannot_be_told_from_zero_are_greedy() {
    let temperature = |text: &str| {
        let body = format!("{{\"temperature\":{text}}}");
        let body = Object::from_body(body.as_bytes()).unwrap();
        sampling(&body, || 0).unwrap().temperature
    };
    assert_eq!(temperature("0"), 0.0);
    assert_eq!(temperature("1e-12"), 0.0);
    assert_eq!(temperature("1e-300"), 0.0);
    assert_eq!(temperature("0.01"), 0.01);
}

#[test]
fn numbers_that_make_no_sense_are_refused_by_name() {
    check(
        r#""temperature":-1"#,
        &expect!["temperature: 'temperature' must be between 0 and 100, not -1"],
    );
    check(
        r#""temperature":1e400"#,
        &expect!["temperature: 'temperature' must be between 0 and 100, not 1e400"],
    );
    check(
        r#""temperature":"hot""#,
        &expect!["temperature: 'temperature' must be a number, not a string"],
    );
    check(
        r#""top_p":0"#,
        &expect!["top_p: 'top_p' must be between 0.000000001 and 1, not 0"],
    );
    check(
        r#""top_p":1.5"#,
        &expect!["top_p: 'top_p' must be between 0.000000001 and 1, not 1.5"],
    );
    check(
        r#""min_p":-0.1"#,
        &expect!["min_p: 'min_p' must be between 0 and 1, not -0.1"],
    );
    check(
        r#""top_k":-2"#,
        &expect!["top_k: 'top_k' must be between -1 and 1048576, not -2"],
    );
    check(
        r#""top_k":2.5"#,
        &expect!["top_k: 'top_k' must be an integer, not 2.5"],
    );
    check(
        r#""repetition_penalty":0"#,
        &expect!["repetition_penalty: 'repetition_penalty' must be between 0.01 and 100, not 0"],
    );
    check(
        r#""presence_penalty":3"#,
        &expect!["presence_penalty: 'presence_penalty' must be between -2 and 2, not 3"],
    );
    check(
        r#""frequency_penalty":[1]"#,
        &expect!["frequency_penalty: 'frequency_penalty' must be a number, not a list"],
    );
}

#[test]
fn counts_that_make_no_sense_are_refused_by_name() {
    check(
        r#""seed":1.5"#,
        &expect!["seed: 'seed' must be an integer, not 1.5"],
    );
    check(
        r#""seed":1e40"#,
        &expect!["seed: 'seed' is out of range, not 1e40"],
    );
    check(
        r#""n":0"#,
        &expect!["n: 'n' must be between 1 and 16, not 0"],
    );
    check(
        r#""n":17"#,
        &expect!["n: 'n' must be between 1 and 16, not 17"],
    );
    check(
        r#""max_tokens":0"#,
        &expect!["max_tokens: 'max_tokens' must be at least 1, not 0"],
    );
    check(
        r#""max_tokens":-5"#,
        &expect!["max_tokens: 'max_tokens' must be at least 1, not -5"],
    );
    check(
        r#""min_tokens":9,"max_tokens":8"#,
        &expect!["min_tokens: 'min_tokens' must not be above the limit of 8 tokens, not 9"],
    );
    check(
        r#""ignore_eos":1"#,
        &expect!["ignore_eos: 'ignore_eos' must be a boolean, not a number"],
    );
}

#[test]
fn the_smallest_top_p_still_keeps_a_candidate() {
    let body = Object::from_body(b"{\"top_p\":1e-9}").unwrap();
    assert!(sampling(&body, || 0).unwrap().top_p > 0.0);
}

#[test]
fn a_token_limit_is_a_wish_of_any_size() {
    let body = Object::from_body(b"{\"max_tokens\":99999999999999}").unwrap();
    assert_eq!(stop_rules(&body).unwrap().max_tokens, Some(u32::MAX));
}

#[test]
fn stop_strings_are_bounded_and_not_empty() {
    check(r#""stop":"""#, &expect!["stop: 'stop' must not be empty"]);
    check(
        r#""stop":["a",""]"#,
        &expect!["stop[1]: 'stop[1]' must not be empty"],
    );
    check(
        r#""stop":["a",7]"#,
        &expect!["stop[1]: 'stop[1]' must be a string, not a number"],
    );
    check(
        &format!(r#""stop":"{}""#, "x".repeat(513)),
        &expect!["stop: 'stop' must not have more than 512 bytes"],
    );
    check(
        &format!(r#""stop":[{}"a"]"#, r#""a","#.repeat(16)),
        &expect!["stop: 'stop' must not have more than 16 elements"],
    );
    check(
        r#""stop_token_ids":[-1]"#,
        &expect!["stop_token_ids[0]: 'stop_token_ids[0]' must be between 0 and 4294967295, not -1"],
    );
}

#[test]
fn logit_bias_is_checked_key_by_key() {
    check(
        r#""logit_bias":{"-1":1}"#,
        &expect!["logit_bias.-1: 'logit_bias' must have token ids as keys"],
    );
    check(
        r#""logit_bias":{"four":1}"#,
        &expect!["logit_bias.four: 'logit_bias' must have token ids as keys"],
    );
    check(
        r#""logit_bias":{"4":101}"#,
        &expect!["logit_bias.4: 'logit_bias.4' must be between -100 and 100, not 101"],
    );
    check(
        r#""logit_bias":{"4":"1"}"#,
        &expect!["logit_bias.4: 'logit_bias.4' must be a number, not a string"],
    );
    check(
        r#""logit_bias":[1]"#,
        &expect!["logit_bias: 'logit_bias' must be an object, not a list"],
    );
    let entries: Vec<String> = (0..1025).map(|token| format!("\"{token}\":1")).collect();
    check(
        &format!("\"logit_bias\":{{{}}}", entries.join(",")),
        &expect![
            "logit_bias: 'logit_bias' cannot be read: more than 1024 keys in one object at line 1 column 8113"
        ],
    );
}

#[test]
fn seeds_keep_their_bits_and_minus_one_is_random() {
    let seed = |text: &str| {
        let body = format!("{{\"seed\":{text}}}");
        let body = Object::from_body(body.as_bytes()).unwrap();
        sampling(&body, || 77).unwrap().seed
    };
    assert_eq!(seed("18446744073709551615"), u64::MAX);
    assert_eq!(seed("-2"), u64::MAX - 1);
    assert_eq!(seed("-1"), 77);
    assert_eq!(seed("0"), 0);
}
