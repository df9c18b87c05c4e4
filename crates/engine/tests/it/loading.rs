use std::fs::File;

use relight_engine::arena::ArenaFiles;
use relight_engine::load::{LoadError, Loaded, load};
use relight_protocol::{EngineConfig, Fault};
use relight_tiny_model::TinyModel;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::tiny_file::TinyFile;

fn memory_file() -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    File::from(memfd_create("test", flags).unwrap())
}

fn shared(weights: &File, kv: &File) -> ArenaFiles {
    let recorder = None;
    ArenaFiles {
        recorder,
        weights: Some(weights.try_clone().unwrap()),
        kv: Some(kv.try_clone().unwrap()),
    }
}

/// Loads and returns how many times progress was reported.
fn load_counting(config: &EngineConfig, arenas: ArenaFiles) -> (Result<Loaded, LoadError>, usize) {
    let mut reports = 0;
    let loaded = load(config, arenas, &mut |done, total| {
        assert!(done <= total);
        reports += 1;
    });
    (loaded, reports)
}

#[test]
fn a_second_engine_finds_the_weights_and_the_number_of_pages() {
    let file = TinyFile::of(&TinyModel::llama());
    let (weights, kv) = (memory_file(), memory_file());
    let config = EngineConfig {
        pages: None,
        ..file.config()
    };
    let (first, reports) = load_counting(&config, shared(&weights, &kv));
    let first = first.unwrap().card;
    assert!(reports > 10, "{reports}");
    let (second, reports) = load_counting(&config, shared(&weights, &kv));
    assert_eq!(reports, 0);
    assert_eq!(second.unwrap().card, first);
    // All slots at full context: 4 x 1024 tokens.
    assert_eq!((first.pages, first.context_tokens), (64, 1024));
}

#[test]
fn the_card_says_what_was_loaded() {
    let file = TinyFile::of(&TinyModel::llama());
    let config = EngineConfig {
        context_tokens: Some(500),
        pages: Some(5),
        ..file.config()
    };
    let card = load_counting(&config, ArenaFiles::default())
        .0
        .unwrap()
        .card;
    assert_eq!(card.architecture, "llama");
    assert_eq!(card.quantization, "Q8_0");
    // Five pages are shorter than the context that was asked for.
    assert_eq!(
        (card.context_tokens, card.context_tokens_trained),
        (320, 1024)
    );
    assert_eq!((card.slots, card.pages, card.threads), (4, 5, 1));
    assert!(card.has_chat_template);
    assert!(card.parameters > 100_000);
}

#[test]
fn a_file_that_changed_under_a_sealed_arena_is_refused() {
    let (weights, kv) = (memory_file(), memory_file());
    let before = TinyFile::of(&TinyModel::llama());
    let loaded = load_counting(&before.config(), shared(&weights, &kv)).0;
    drop(loaded.unwrap());
    let after = TinyFile::of(&TinyModel {
        seed: 2,
        ..TinyModel::llama()
    });
    let refused = load_counting(&after.config(), shared(&weights, &kv)).0;
    let fault = refused.unwrap_err().to_fault();
    let Fault::ModelInvalid { message } = fault else {
        panic!("{fault}");
    };
    assert!(message.contains("another model"), "{message}");
}

#[test]
fn broken_files_are_refused_with_a_reason() {
    let whole = TinyModel::llama().build();
    let cases = [&whole[..37], &whole[..whole.len() / 2], &[], b"not a model"];
    for bytes in cases {
        let file = TinyFile::with_bytes(bytes);
        let refused = load_counting(&file.config(), ArenaFiles::default()).0;
        let error = refused.unwrap_err();
        assert!(
            matches!(error, LoadError::File(_) | LoadError::Arena(_)),
            "{error}"
        );
    }
}
