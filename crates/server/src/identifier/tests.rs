use axum::http::{HeaderMap, HeaderValue};

use super::*;

fn named(value: &'static [u8]) -> String {
    let mut headers = HeaderMap::new();
    headers.insert(REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
    let (name, header) = request_id(&headers);
    assert_eq!(header.as_bytes(), name.as_bytes());
    name
}

#[test]
fn a_clients_name_is_kept_if_it_is_short_plain_text() {
    assert_eq!(named(b"my id 7"), "my id 7");
    assert!(named(b"").starts_with("req-"));
    assert!(named(b"\xff").starts_with("req-"));
    assert!(named(&[b'x'; 129]).starts_with("req-"));
}

#[test]
fn names_are_not_used_twice() {
    assert_ne!(unique_name("a"), unique_name("a"));
    assert_ne!(random_bits(), random_bits());
}
