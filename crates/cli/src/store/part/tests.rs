//! Files that are being written.

use super::{Expected, Part, expect_space, file_sha256};
use crate::store::error::StoreError;
use crate::store::lock::PullLock;
use crate::store::scratch::Scratch;

/// SHA-256 of `hello world`.
const HELLO: &str = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

fn expected() -> Expected {
    Expected {
        bytes: Some(11),
        sha256: Some(HELLO.to_owned()),
    }
}

#[test]
fn a_later_run_goes_on_where_an_earlier_one_stopped() {
    let scratch = Scratch::new();
    let target = scratch.path().join("file");
    let mut part = Part::open(&target, "content").unwrap();
    part.append(b"hello ").unwrap();
    drop(part);
    assert!(!target.exists());

    let mut part = Part::open(&target, "content").unwrap();
    assert_eq!(part.bytes(), 6);
    part.append(b"world").unwrap();
    assert_eq!(part.finish(&expected()).unwrap(), HELLO);
    assert_eq!(file_sha256(&target).unwrap(), HELLO);
    assert_eq!(scratch.names(), ["file"]);
}

#[test]
fn parts_of_different_contents_do_not_mix() {
    let scratch = Scratch::new();
    let target = scratch.path().join("file");
    Part::open(&target, "old")
        .unwrap()
        .append(b"hello")
        .unwrap();
    assert_eq!(Part::open(&target, "new").unwrap().bytes(), 0);
    let mut old = Part::open(&target, "old").unwrap();
    assert_eq!(old.bytes(), 5);
    old.append(b" world").unwrap();
    old.finish(&expected()).unwrap();
    assert_eq!(
        scratch.names(),
        ["file"],
        "other parts are no longer wanted"
    );
}

#[test]
fn wrong_bytes_never_get_the_name_and_do_not_stay() {
    let scratch = Scratch::new();
    let target = scratch.path().join("file");
    let mut part = Part::open(&target, "content").unwrap();
    part.append(b"hello wOrld").unwrap();
    let error = part.finish(&expected()).unwrap_err();
    assert!(matches!(error, StoreError::WrongChecksum { .. }), "{error}");

    let mut part = Part::open(&target, "content").unwrap();
    part.append(b"hello").unwrap();
    let error = part.finish(&expected()).unwrap_err();
    assert!(
        matches!(error, StoreError::WrongSize { found: 5, .. }),
        "{error}"
    );
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_part_that_starts_again_forgets_what_it_had() {
    let scratch = Scratch::new();
    let mut part = Part::open(&scratch.path().join("file"), "content").unwrap();
    part.append(b"something else").unwrap();
    part.restart().unwrap();
    part.append(b"hello world").unwrap();
    assert!(part.finish(&expected()).is_ok());
}

#[test]
fn too_little_space_is_said_before_anything_is_fetched() {
    let scratch = Scratch::new();
    let error = expect_space(scratch.path(), u64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
    assert!(expect_space(scratch.path(), 1).is_ok());
}

#[test]
fn a_file_is_pulled_by_one_at_a_time() {
    let scratch = Scratch::new();
    let target = scratch.path().join("file");
    let first = PullLock::acquire(&target).unwrap();
    let error = PullLock::acquire(&target).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    let other = PullLock::acquire(&scratch.path().join("other")).unwrap();
    drop((first, other));
    assert!(PullLock::acquire(&target).is_ok());
    assert_eq!(scratch.names(), [""; 0]);
}
