use relight_protocol::{ChoiceProgress, FinishReason, RequestId, Sampling, StopRules, TokenId};

use super::*;
use crate::test_vocabulary::{FIRST_WORD, SIZE, language};

fn context(language: &Language) -> PrepareContext<'_> {
    PrepareContext {
        language,
        context_tokens: 100,
        now_unix_seconds: 0,
    }
}

fn request(prompt: Prompt) -> Request {
    Request {
        prompt,
        choices: 1,
        sampling: Sampling::default(),
        stop: StopRules::default(),
        logprobs: None,
        echo: true,
    }
}

fn chat(messages: &str) -> Prompt {
    Prompt::Chat(Chat {
        messages_json: messages.to_owned(),
        tools_json: None,
        variables_json: None,
        add_generation_prompt: true,
        continue_final_message: false,
    })
}

fn run<'a>(language: &'a Language, request: &Request) -> Result<Prepared<'a>, Fault> {
    prepare(&context(language), request, None)
}

fn assert_invalid(result: Result<Prepared<'_>, Fault>, field: &str, part: &str) {
    match result {
        Err(Fault::InvalidRequest { param, message }) => {
            assert_eq!(param.as_deref(), Some(field));
            assert!(message.contains(part), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_gets_the_models_first_token_and_a_chat_does_not() {
    let language = language();
    let text = run(&language, &request(Prompt::Text("ab".into()))).unwrap();
    assert_eq!(text.prompt[0], 1);
    assert_eq!(text.prompt_text.as_deref(), Some("ab"));
    let messages = r#"[{"role":"user","content":"ab"},{"role":"user","content":"ba"}]"#;
    let chat = run(&language, &request(chat(messages))).unwrap();
    assert_ne!(chat.prompt[0], 1);
    assert_eq!(chat.prompt_text.as_deref(), Some("abba"));
}

#[test]
fn what_the_template_refuses_names_the_field_and_the_line() {
    let language = language();
    let refused = request(chat(r#"[{"role":"tool","content":"x"}]"#));
    assert_invalid(run(&language, &refused), "messages", "line 1");
    let broken = request(chat("{"));
    assert_invalid(run(&language, &broken), "messages", "line 1");
}

#[test]
fn ids_outside_the_vocabulary_name_their_field() {
    let language = language();
    let last = TokenId(u32::try_from(SIZE).unwrap() - 1);
    let beyond = TokenId(last.0 + 1);
    let mut good = request(Prompt::Tokens(vec![last]));
    good.sampling.logit_bias = vec![(last, 1.0)];
    good.stop.token_ids = vec![last];
    run(&language, &good).unwrap();

    let mut bad = good.clone();
    bad.sampling.logit_bias = vec![(beyond, 1.0)];
    assert_invalid(run(&language, &bad), "logit_bias", "vocabulary of 267");
    let mut bad = good;
    bad.stop.token_ids = vec![beyond];
    assert_invalid(run(&language, &bad), "stop_token_ids", "267");
    let bad = request(Prompt::Tokens(vec![last, beyond]));
    assert_invalid(run(&language, &bad), "prompt", "token id 267");
    let empty = request(Prompt::Tokens(Vec::new()));
    assert_invalid(run(&language, &empty), "prompt", "no tokens");
}

#[test]
fn a_prompt_that_leaves_no_room_is_refused_with_both_numbers() {
    let language = language();
    let of = |count| request(Prompt::Tokens(vec![TokenId(5); count]));
    let prepared = run(&language, &of(99)).unwrap();
    assert_eq!(prepared.choices[0].completion.tokens_max(), 1);
    assert_eq!(
        run(&language, &of(100)).unwrap_err(),
        Fault::ContextFull {
            prompt_tokens: 100,
            context_tokens: 100
        }
    );
}

#[test]
fn the_token_limit_is_clamped_to_what_fits() {
    let language = language();
    let mut wish = request(Prompt::Tokens(vec![TokenId(5); 60]));
    for (max_tokens, expected) in [(Some(u32::MAX), 40), (Some(7), 7), (None, 40)] {
        wish.stop.max_tokens = max_tokens;
        let prepared = run(&language, &wish).unwrap();
        assert_eq!(prepared.choices[0].completion.tokens_max(), expected);
    }
}

#[test]
fn a_very_long_text_is_refused_without_tokenizing_it() {
    let language = language();
    let long = request(Prompt::Text("a".repeat(EXACT_COUNT_BYTES_MAX + 1)));
    match run(&language, &long) {
        Err(Fault::ContextFull { prompt_tokens, .. }) => assert!(prompt_tokens > 100_000),
        other => panic!("{other:?}"),
    }
    let longer = request(Prompt::Text("a".repeat(PROMPT_BYTES_MAX + 1)));
    assert_invalid(run(&language, &longer), "prompt", "bytes");
}

#[test]
fn a_resumed_request_takes_its_prompt_from_the_record() {
    let language = language();
    let a = TokenId(FIRST_WORD);
    let mut original = request(chat("not even json"));
    original.choices = 2;
    original.stop.max_tokens = Some(2);
    let resume = Resume {
        prompt_tokens: vec![TokenId(7), TokenId(8)],
        choices: vec![
            ChoiceProgress {
                choice: ChoiceIndex(0),
                tokens: vec![a],
                finished: false,
            },
            ChoiceProgress {
                choice: ChoiceIndex(1),
                tokens: vec![a, a],
                finished: false,
            },
        ],
    };
    let prepared = prepare(&context(&language), &original, Some(&resume)).unwrap();
    assert_eq!(prepared.prompt, [7, 8]);
    let [first, second] = prepared.choices.as_slice() else {
        panic!("two choices");
    };
    assert_eq!(first.completion.end(), None);
    assert_eq!(first.completion.token_count(), 1);
    let end = second.completion.end().unwrap();
    assert_eq!((end.reason, end.text_offset), (FinishReason::Length, 2));

    let mut foreign = resume;
    foreign.choices[0].tokens.push(TokenId(9999));
    let refused = prepare(&context(&language), &original, Some(&foreign));
    assert_invalid(refused, "prompt", "9999");
}

#[test]
fn a_job_that_panics_fails_alone() {
    let language = language();
    let id = RequestId(4);
    crate::containment::planned::panic_at(id, Phase::Prepare, 0);
    let job = PrepareJob {
        id,
        attempt: 1,
        request: Box::new(request(Prompt::Text("a".into()))),
        resume: None,
        is_stale: std::sync::Arc::default(),
    };
    let phase = Phase::Prepare;
    let failed = run_job(&context(&language), &job);
    assert_eq!(failed.unwrap_err().fault, Fault::Internal { phase });
    run_job(&context(&language), &job).unwrap();
}

#[test]
fn memory_that_cannot_be_had_is_the_requests_own_fault() {
    assert_eq!(
        room_for::<u32>(usize::MAX / 8).unwrap_err(),
        Fault::OutOfMemory
    );
    assert!(room_for::<u32>(100).unwrap().capacity() >= 100);
}
