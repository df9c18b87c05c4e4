//! What a repository offers, and how a hub is spoken to.

use super::{Hub, RepositoryFile, choose, escape, next_page};
use crate::store::error::StoreError;
use crate::store::fake_hub::{Behaviour, FakeHub};
use crate::store::source::Repository;

fn repository(wanted: Option<&str>) -> Repository {
    Repository {
        user: "user".to_owned(),
        name: "name".to_owned(),
        wanted: wanted.map(str::to_owned),
    }
}

fn chosen(paths: &[&str], wanted: Option<&str>) -> Result<String, StoreError> {
    let files: Vec<RepositoryFile> = paths
        .iter()
        .map(|path| RepositoryFile {
            kind: "file".to_owned(),
            path: (*path).to_owned(),
            size: 1,
            lfs: None,
        })
        .collect();
    choose(&files, &repository(wanted)).map(|file| file.path.clone())
}

#[test]
fn the_usual_quantization_is_taken_without_a_wish() {
    let files = ["README.md", "m-IQ2_M.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"];
    assert_eq!(chosen(&files, None).unwrap(), "m-Q4_K_M.gguf");
    assert_eq!(
        chosen(&["m.Q8_0.gguf", "m.F16.gguf"], None).unwrap(),
        "m.F16.gguf"
    );
    let pieces = ["a-Q8_0-00001-of-00002.gguf", "b-Q8_0.gguf"];
    assert_eq!(chosen(&pieces, None).unwrap(), "b-Q8_0.gguf");
}

#[test]
fn a_wish_is_a_quantization_in_any_case_or_a_path() {
    let files = [
        "m-Q4_K_S.gguf",
        "m-Q4_K_M.gguf",
        "m-UD-Q4_K_XL.gguf",
        "f16/m-F16.gguf",
    ];
    assert_eq!(chosen(&files, Some("q4_k_s")).unwrap(), "m-Q4_K_S.gguf");
    assert_eq!(
        chosen(&files, Some("UD-Q4_K_XL")).unwrap(),
        "m-UD-Q4_K_XL.gguf"
    );
    assert_eq!(
        chosen(&files, Some("f16/m-F16.gguf")).unwrap(),
        "f16/m-F16.gguf"
    );
    assert_eq!(chosen(&files, Some("F16")).unwrap(), "f16/m-F16.gguf");
    let error = chosen(&files, Some("Q4_K")).unwrap_err();
    assert!(
        matches!(&error, StoreError::NoSuchFile { available, .. } if available.len() == 4),
        "{error}"
    );
}

#[test]
fn projectors_and_importance_matrices_are_no_models() {
    let files = ["mmproj-F16.gguf", "m.imatrix.gguf"];
    let error = chosen(&files, None).unwrap_err();
    assert!(matches!(error, StoreError::NoModelFile { .. }), "{error}");
}

#[test]
fn a_split_model_is_refused_by_name() {
    for wanted in [None, Some("Q8_0")] {
        let files = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"];
        let error = chosen(&files, wanted).unwrap_err();
        assert!(matches!(error, StoreError::Split { .. }), "{error}");
    }
}

#[test]
fn addresses_are_escaped_and_links_are_read() {
    assert_eq!(escape("a b#c%/ü"), "a%20b%23c%25%2F%C3%BC");
    let link = "<https://h/a>; rel=\"prev\", <https://h/b?cursor=x>; rel=\"next\"";
    assert_eq!(next_page(link), Some("https://h/b?cursor=x"));
    assert_eq!(next_page("<https://h/a>; rel=\"prev\""), None);
}

#[test]
fn an_endpoint_that_is_no_address_is_refused() {
    for endpoint in ["", "huggingface", "ftp://host", "file:///etc"] {
        let error = Hub::new(endpoint, None).unwrap_err();
        assert!(matches!(error, StoreError::InvalidSource { .. }), "{error}");
    }
}

#[test]
fn a_mirror_may_lie_under_a_path_and_its_list_may_have_pages() {
    let files = (0..5).map(|index| (format!("m{index}.gguf"), vec![index; 10]));
    let mut files: Vec<_> = files.collect();
    files.push(("last-Q4_K_M.gguf".to_owned(), vec![9; 20]));
    let hub = FakeHub::start(Behaviour {
        files,
        prefix: "/mirror/hf".to_owned(),
        page: Some(2),
        ..Behaviour::default()
    });
    let found = Hub::new(&format!("{}/", hub.endpoint()), None).unwrap();
    let found = found.find(&repository(None)).unwrap();
    assert_eq!(found.path, ["last-Q4_K_M.gguf"]);
    assert_eq!(found.expected.bytes, Some(20));
    assert!(
        found
            .url
            .starts_with(&format!("{}/user/name/resolve/", hub.endpoint()))
    );
    assert_eq!(hub.behaviour().seen.len(), 4, "the model and three pages");
}

#[test]
fn a_list_without_end_is_given_up() {
    let files = (0..40).map(|index| (format!("m{index}.gguf"), Vec::new()));
    let hub = FakeHub::start(Behaviour {
        files: files.collect(),
        page: Some(1),
        ..Behaviour::default()
    });
    let error = Hub::new(&hub.endpoint(), None)
        .unwrap()
        .find(&repository(None))
        .unwrap_err();
    assert!(
        matches!(error, StoreError::ListingTooLong { .. }),
        "{error}"
    );
}

#[test]
fn missing_and_closed_repositories_are_told_apart() {
    let hub = FakeHub::start(Behaviour {
        token: Some("secret".to_owned()),
        ..Behaviour::default()
    });
    let closed = |token: Option<&str>| {
        let hub = Hub::new(&hub.endpoint(), token.map(str::to_owned)).unwrap();
        hub.find(&repository(None)).unwrap_err()
    };
    let error = closed(None);
    assert!(
        matches!(
            error,
            StoreError::AccessRefused {
                with_token: false,
                ..
            }
        ),
        "{error}"
    );
    let error = closed(Some("wrong"));
    assert!(
        matches!(
            error,
            StoreError::AccessRefused {
                with_token: true,
                ..
            }
        ),
        "{error}"
    );
    let open = Hub::new(&hub.endpoint(), Some("secret".to_owned())).unwrap();
    let elsewhere = Repository {
        name: "other".to_owned(),
        ..repository(None)
    };
    let error = open.find(&elsewhere).unwrap_err();
    assert!(
        matches!(error, StoreError::RepositoryNotFound { .. }),
        "{error}"
    );
}
