//! The folder of model files.

use std::path::{Path, PathBuf};

use super::Surroundings;
use crate::store::scratch::Scratch;

#[test]
fn a_checkout_keeps_its_models_beside_the_sources() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let inside = Surroundings {
        current: Some(checkout.join("crates/gguf")),
        data: Some(PathBuf::from("/data")),
        home: None,
    };
    assert_eq!(inside.models(), checkout.join("models"));
}

#[test]
fn elsewhere_the_users_data_folder_counts() {
    let elsewhere = Scratch::new();
    let mut surroundings = Surroundings {
        current: Some(elsewhere.path().to_owned()),
        data: Some(PathBuf::from("/data")),
        home: Some(PathBuf::from("/users/me")),
    };
    assert_eq!(surroundings.models(), Path::new("/data/relight/models"));
    surroundings.data = None;
    let expected = Path::new("/users/me/.local/share/relight/models");
    assert_eq!(surroundings.models(), expected);
}
