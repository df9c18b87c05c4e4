mod vectors;

use relight_gguf::{Gguf, Writer};
use serde_json::{Value as Json, json};

use super::{ChatInput, ChatTemplate, SpecialTexts, TemplateError, TemplateLimits};

const LIMITS: TemplateLimits = TemplateLimits {
    fuel: 100_000,
    output_bytes: 10_000,
};

fn compile(source: &str) -> Result<ChatTemplate, TemplateError> {
    let special = SpecialTexts {
        bos: "<s>".to_owned(),
        eos: "</s>".to_owned(),
        ..SpecialTexts::default()
    };
    ChatTemplate::new(source, special, LIMITS)
}

fn input(messages: &Json) -> ChatInput {
    ChatInput {
        add_generation_prompt: false,
        ..ChatInput::from_json(&messages.to_string(), None, None).unwrap()
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "cases read better without a borrow each"
)]
fn render(source: &str, messages: Json) -> Result<String, TemplateError> {
    compile(source).unwrap().render(&input(&messages))
}

const TEXT: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
const PARTS: &str = "{% for m in messages %}{{ m.role }}:{% for p in m.content %}[{{ p.text }}]{% endfor %};{% endfor %}";
const BOTH: &str = "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %};{% endfor %}";
const NULL: &str = "{% for m in messages %}{{ m.role }}:{% if m.content is none %}nothing{% else %}{{ m.content }}{% endif %};{% endfor %}";

#[test]
fn content_takes_the_shape_that_the_template_reads() {
    let parts = json!([{ "role": "user", "content": [
        { "type": "text", "text": "a" }, { "type": "text", "text": "b" },
    ]}]);
    let text = json!([{ "role": "user", "content": "ab" }]);
    let check = |source, messages: &Json, expected: &str| {
        assert_eq!(render(source, messages.clone()).unwrap(), expected);
    };
    check(TEXT, &parts, "user:a\nb;");
    check(TEXT, &text, "user:ab;");
    check(PARTS, &parts, "user:[a][b];");
    check(PARTS, &text, "user:[ab];");
    check(BOTH, &parts, "user:[a][b];");
    check(BOTH, &text, "user:ab;");
}

#[test]
fn missing_content_is_empty_unless_the_template_asks_for_none() {
    for messages in [
        json!([{ "role": "user", "content": null }]),
        json!([{ "role": "user" }]),
    ] {
        assert_eq!(render(TEXT, messages.clone()).unwrap(), "user:;");
        assert_eq!(render(NULL, messages).unwrap(), "user:nothing;");
    }
}

#[test]
fn members_written_out_as_null_are_absent() {
    let source =
        "{% for m in messages %}{{ 'tool_calls' in m }}{{ m.name is defined }};{% endfor %}";
    let messages = json!([{ "role": "user", "content": "x", "tool_calls": null, "name": null },
        { "role": "assistant", "content": "x", "tool_calls": [] }]);
    assert_eq!(render(source, messages).unwrap(), "FalseFalse;FalseFalse;");
}

#[test]
fn developers_are_systems_where_the_template_knows_no_developers() {
    let messages = json!([{ "role": "developer", "content": "x" }]);
    assert_eq!(render(TEXT, messages.clone()).unwrap(), "system:x;");
    let knows = "{% if messages[0].role == 'developer' %}yes{% endif %}";
    assert_eq!(render(knows, messages).unwrap(), "yes");
}

#[test]
fn arguments_of_calls_are_what_the_template_prints() {
    let called = |arguments: Json| {
        json!([{ "role": "assistant", "content": null, "tool_calls": [
            { "function": { "name": "f", "arguments": arguments } },
        ]}])
    };
    let loops = |inner: &str| {
        format!(
            "{{% for m in messages %}}{{% for c in m.tool_calls %}}{inner}{{% endfor %}}{{% endfor %}}"
        )
    };
    let as_object = loops("{{ c.function.arguments | tojson }}");
    for arguments in [json!("{\"a\":1}"), json!({ "a": 1 })] {
        assert_eq!(render(&as_object, called(arguments)).unwrap(), "{\"a\": 1}");
    }
    assert_eq!(render(&as_object, called(json!(""))).unwrap(), "{}");
    assert_eq!(
        render(&as_object, called(json!("not json"))).unwrap(),
        "\"not json\""
    );
    let as_text = loops("{{ '<' + c.function.arguments + '>' }}");
    assert_eq!(
        render(&as_text, called(json!("{\"a\":1}"))).unwrap(),
        "<{\"a\":1}>"
    );
}

#[test]
fn what_is_not_text_is_refused_by_its_place() {
    let image = json!([{ "role": "user", "content": "x" }, { "role": "user", "content": [
        { "type": "text", "text": "a" }, { "type": "image_url", "image_url": { "url": "x" } },
    ]}]);
    for source in [TEXT, PARTS] {
        let refused = render(source, image.clone());
        assert_eq!(
            refused,
            Err(TemplateError::PartNotText {
                message: 1,
                part: 1
            })
        );
    }
    let refused = render(TEXT, json!([{ "role": "user", "content": 5 }]));
    assert_eq!(refused, Err(TemplateError::ContentNotText { message: 0 }));
    let refused = render(TEXT, json!(["hello"]));
    assert_eq!(refused, Err(TemplateError::MessageNotObject { message: 0 }));
}

#[test]
fn a_template_speaks_through_its_exception() {
    let source = "{% for m in messages %}\n{% if m.role != 'user' %}\n{{ raise_exception('no ' + m.role) }}\n{% endif %}\n{% endfor %}";
    let refused = render(source, json!([{ "role": "system", "content": "x" }]));
    let message = "no system".to_owned();
    assert_eq!(refused, Err(TemplateError::Raised { line: 3, message }));
}

#[test]
fn errors_name_their_line() {
    let invalid = compile("fine\n{% if %}\n").unwrap_err();
    assert!(
        matches!(invalid, TemplateError::Invalid { line: 2, .. }),
        "{invalid}"
    );
    let failed = render("\n\n{{ messages[0].x.y }}", json!([{ "role": "user" }])).unwrap_err();
    assert!(
        matches!(failed, TemplateError::Failed { line: 3, .. }),
        "{failed}"
    );
    let unknown = render("{{ 1 | nofilter }}", json!([])).unwrap_err();
    assert!(unknown.to_string().contains("line 1"), "{unknown}");
}

#[test]
fn endless_and_boundless_templates_are_stopped() {
    let endless = "{% for i in range(9000) %}{% for j in range(9000) %}{% endfor %}{% endfor %}";
    let stopped = render(endless, json!([]));
    assert_eq!(stopped, Err(TemplateError::OutOfFuel { line: 1 }));
    let boundless = "{% for i in range(3000) %}0123456789{% endfor %}";
    let stopped = render(boundless, json!([]));
    assert_eq!(stopped, Err(TemplateError::OutputTooLong { limit: 10_000 }));
    for hostile in [
        "{{ 'a' * 3000000000 }}",
        "{% set x = messages | tojson %}{% for i in range(90000) %}{% set x = [x, x] | tojson %}{% endfor %}",
    ] {
        assert!(render(hostile, json!([{ "role": "user", "content": "x" }])).is_err());
    }
    let nested = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(compile(&format!("{{{{ {nested} }}}}")).is_err());
}

#[test]
fn the_final_message_stays_open() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    let template = compile(source).unwrap();
    let messages = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "Once upon" }]);
    let mut chat = input(&messages);
    chat.continue_final_message = true;
    assert_eq!(
        template.render(&chat).unwrap(),
        "<user>a</user><assistant>Once upon"
    );
    chat.add_generation_prompt = true;
    assert_eq!(template.render(&chat), Err(TemplateError::TwoContinuations));
    chat.add_generation_prompt = false;
    chat.messages.clear();
    assert_eq!(
        template.render(&chat),
        Err(TemplateError::NothingToContinue)
    );
    // A template that does not show the last message cannot leave it open.
    let blind = compile("nothing").unwrap();
    let mut chat = input(&json!([{ "role": "user", "content": "a" }]));
    chat.continue_final_message = true;
    assert_eq!(blind.render(&chat), Err(TemplateError::NothingToContinue));
}

#[test]
fn variables_reach_the_template_but_replace_nothing_of_its_own() {
    let template =
        compile("{{ a }}{{ b.c }}{{ bos_token }}{{ messages | length }}{{ documents }}").unwrap();
    let variables = r#"{"a": 1, "b": {"c": "x"}, "bos_token": "evil", "messages": [1, 2, 3]}"#;
    let chat = ChatInput::from_json("[]", None, Some(variables)).unwrap();
    assert_eq!(template.render(&chat).unwrap(), "1x<s>0None");
    let template = compile("{{ documents }}").unwrap();
    let chat = ChatInput::from_json("[]", None, Some(r#"{"documents": []}"#)).unwrap();
    assert_eq!(template.render(&chat).unwrap(), "[]");
}

#[test]
fn broken_json_is_refused_by_field() {
    let refused = ChatInput::from_json("[", None, None).unwrap_err();
    assert_eq!(
        refused,
        TemplateError::NotJson {
            field: "messages",
            line: 1,
            column: 1
        }
    );
    assert!(ChatInput::from_json("[]", Some("{"), None).is_err());
    assert!(ChatInput::from_json("[]", None, Some("[]")).is_err());
}

#[test]
fn a_model_without_a_template_says_so_unless_one_is_given() {
    let file = Writer::new(3).metadata("general.name", "base").finish();
    let metadata = Gguf::parse(&file).unwrap();
    let made = |replacement| {
        let special = SpecialTexts::default();
        ChatTemplate::from_gguf(metadata.metadata(), replacement, special, LIMITS)
    };
    assert_eq!(made(None).unwrap_err(), TemplateError::Missing);
    let text = made(Some("x")).unwrap().render(&input(&json!([])));
    assert_eq!(text.unwrap(), "x");
}
