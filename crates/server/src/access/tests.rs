use super::*;

fn keys() -> ApiKeys {
    ApiKeys::new(vec!["one".to_owned(), "two".to_owned()])
}

fn check(headers: &[(&'static str, &'static str)], path: &str) -> Result<(), Refusal> {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
        .collect();
    keys().check(path, &headers)
}

#[test]
fn either_header_opens_with_any_of_the_keys() {
    let path = "/v1/models";
    assert_eq!(check(&[("authorization", "Bearer two")], path), Ok(()));
    assert_eq!(check(&[("authorization", "bearer one")], path), Ok(()));
    assert_eq!(check(&[("x-api-key", "one")], path), Ok(()));
    let both = [
        ("authorization", "Bearer placeholder"),
        ("x-api-key", "two"),
    ];
    assert_eq!(check(&both, path), Ok(()));
}

#[test]
fn other_keys_do_not_open() {
    let path = "/v1/chat/completions";
    assert_eq!(check(&[], path), Err(Refusal::KeyMissing));
    assert_eq!(
        check(&[("authorization", "Basic one")], path),
        Err(Refusal::KeyMissing)
    );
    for wrong in ["", "on", "onee", "One", "one two"] {
        assert_eq!(check(&[("x-api-key", wrong)], path), Err(Refusal::KeyWrong));
    }
}

#[test]
fn probes_need_no_key_and_no_keys_need_none() {
    for path in OPEN_PATHS {
        assert_eq!(check(&[], path), Ok(()));
    }
    assert_eq!(check(&[], "/metrics"), Err(Refusal::KeyMissing));
    assert_eq!(
        ApiKeys::default().check("/v1/models", &HeaderMap::new()),
        Ok(())
    );
}

#[test]
fn keys_are_not_printed() {
    assert_eq!(format!("{:?}", keys()), "ApiKeys(2)");
}

#[test]
fn only_pages_of_this_machine_may_read_answers() {
    let is_loopback = |origin| is_loopback(&HeaderValue::from_static(origin));
    assert!(is_loopback("http://localhost:3000"));
    assert!(is_loopback("https://127.0.0.1"));
    assert!(is_loopback("http://[::1]:80"));
    for foreign in [
        "null",
        "http://localhost.example",
        "http://127.0.0.1.example:80",
        "http://example:localhost",
        "ftp://localhost",
        "http://[::1",
    ] {
        assert!(!is_loopback(foreign), "{foreign}");
    }
}
