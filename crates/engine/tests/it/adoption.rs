//! Pages that outlive the engine: what a second one finds of the first, and that damage to
//! it costs time and never a byte.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use relight_engine::pages::TableShape;
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::recorder::RECORDER_BYTES;
use relight_protocol::{
    ArenaFds, ChoiceIndex, ChoiceProgress, EngineConfig, Event, KvType, Prompt, Request, Resume,
    Stats, TokenId,
};
use relight_tiny_model::TinyModel;

use crate::client::{request, tokens_of};
use crate::process::{memory_file, start};
use crate::tiny_file::TinyFile;

const PROMPT_TOKENS: u32 = 1500;
const ANSWER_TOKENS: u32 = 500;
const PAGES: u16 = 80;

fn model(seed: u64) -> TinyModel {
    TinyModel {
        context: 4096,
        seed,
        ..TinyModel::llama()
    }
}

fn conversation() -> Request {
    let ids = (0..PROMPT_TOKENS).map(|index| TokenId(3 + index * index * 7 % 601));
    Request {
        prompt: Prompt::Tokens(ids.collect()),
        ..request(ANSWER_TOKENS)
    }
}

/// What the supervisor keeps.
struct Arenas {
    weights: OwnedFd,
    kv: OwnedFd,
    recorder: OwnedFd,
}

impl Arenas {
    fn new() -> Self {
        let recorder = memory_file("recorder");
        rustix::fs::ftruncate(&recorder, RECORDER_BYTES as u64).unwrap();
        Self {
            weights: memory_file("weights"),
            kv: memory_file("kv"),
            recorder,
        }
    }

    /// A step has room for one page of prompt only, so that steps count pages.
    fn config(&self, file: &TinyFile) -> EngineConfig {
        EngineConfig {
            arenas: Some(ArenaFds {
                weights: self.weights.as_raw_fd(),
                kv: self.kv.as_raw_fd(),
                recorder: self.recorder.as_raw_fd(),
            }),
            pages: Some(u32::from(PAGES)),
            batch_tokens: u32::try_from(PAGE_TOKENS).unwrap(),
            ..file.config()
        }
    }

    fn kv(&self) -> File {
        File::from(self.kv.try_clone().unwrap())
    }

    fn page_start() -> u64 {
        let table = TableShape::bytes(usize::from(PAGES));
        table.next_multiple_of(4096) as u64
    }

    fn page_bytes(&self) -> u64 {
        let length = self.kv().metadata().unwrap().len();
        (length - Self::page_start()) / u64::from(PAGES)
    }

    fn flip_bit(&self, place: u64) {
        let mut byte = [0];
        self.kv().read_exact_at(&mut byte, place).unwrap();
        byte[0] ^= 0x10;
        self.kv().write_all_at(&byte, place).unwrap();
    }
}

/// The conversation's part that another engine was asked for.
struct Rest {
    events: Vec<Event>,
    cached_tokens: u32,
    stats: Stats,
}

/// Runs the conversation until `count` of its tokens are known, and kills the engine.
fn begin(arenas: &Arenas, file: &TinyFile, count: usize) -> Vec<TokenId> {
    let (mut client, mut child) = start();
    client.load(arenas.config(file));
    client.submit(1, &conversation(), None);
    let mut tokens = Vec::new();
    while tokens.len() < count {
        if let Event::Delta(delta) = client.next() {
            tokens.push(delta.token);
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    tokens
}

/// Has a new engine go on behind `tokens`.
fn go_on(arenas: &Arenas, file: &TinyFile, tokens: Vec<TokenId>) -> Rest {
    let request = conversation();
    let Prompt::Tokens(prompt_tokens) = &request.prompt else {
        panic!("the prompt is given as ids");
    };
    let resume = Resume {
        prompt_tokens: prompt_tokens.clone(),
        choices: vec![ChoiceProgress {
            choice: ChoiceIndex(0),
            tokens,
            finished: false,
        }],
    };
    let (mut client, mut child) = start();
    client.load(arenas.config(file));
    client.submit(1, &request, Some(resume));
    let events = client.stream();
    let Some(Event::Finished(finished)) = events.last() else {
        panic!("{:?}", events.last());
    };
    let cached_tokens = finished.usage.cached_tokens;
    let stats = loop {
        if let Event::Stats(stats) = client.next() {
            break stats;
        }
    };
    drop(client);
    assert!(child.wait().unwrap().success());
    Rest {
        events: said(events),
        cached_tokens,
        stats,
    }
}

/// What clients see of it.
fn said(events: Vec<Event>) -> Vec<Event> {
    let is_seen = |event: &Event| matches!(event, Event::Delta(_) | Event::ChoiceFinished(_));
    events.into_iter().filter(is_seen).collect()
}

fn undisturbed(file: &TinyFile) -> Vec<Event> {
    let (mut client, mut child) = start();
    client.load(Arenas::new().config(file));
    client.submit(1, &conversation(), None);
    let events = said(client.stream());
    drop(client);
    assert!(child.wait().unwrap().success());
    assert_eq!(tokens_of(&events).len(), ANSWER_TOKENS as usize);
    events
}

/// Pages of every type outlive the engine that filled them, and none is taken for another's.
#[test]
fn pages_are_adopted_by_engines_of_the_same_type_only() {
    let file = TinyFile::of(&model(1));
    let mut wholes = Vec::new();
    for kv_type in KvType::ALL {
        let file = file.with_kv_type(kv_type);
        let whole = undisturbed(&file);
        let arenas = Arenas::new();
        let tokens = begin(&arenas, &file, 250);
        let rest = go_on(&arenas, &file, tokens.clone());
        assert_eq!(rest.events, whole[250..], "{kv_type:?}");
        assert!(PROMPT_TOKENS - rest.cached_tokens < 64);
        assert_eq!(rest.stats.pages_corrupt_total, 0);
        for other in KvType::ALL.into_iter().filter(|other| *other != kv_type) {
            let kept = Arenas {
                kv: arenas.kv.try_clone().unwrap(),
                ..Arenas::new()
            };
            let rest = go_on(&kept, &file.with_kv_type(other), tokens.clone());
            assert_eq!((rest.cached_tokens, rest.stats.pages_adopted_total), (0, 0));
            assert_eq!(rest.stats.pages_corrupt_total, 0);
        }
        wholes.push(whole);
    }
    assert_ne!(wholes[0], wholes[1]);
    assert_ne!(wholes[0], wholes[2]);
}

/// After SIGKILL at any point, less than one page of a conversation of 2,000 tokens is
/// computed again, and the stream is the undisturbed one.
#[test]
fn a_conversation_goes_on_with_the_pages_of_the_engine_that_was_killed() {
    let file = TinyFile::of(&model(1));
    let whole = undisturbed(&file);
    for count in [1, 250, 499] {
        let arenas = Arenas::new();
        let tokens = begin(&arenas, &file, count);
        let rest = go_on(&arenas, &file, tokens);
        assert_eq!(rest.events, whole[count..], "killed after {count}");
        let known = PROMPT_TOKENS as usize + count - 1;
        assert!(rest.stats.pages_adopted_total >= (known / PAGE_TOKENS) as u64);
        assert_eq!(rest.stats.pages_corrupt_total, 0);
        assert!(PROMPT_TOKENS - rest.cached_tokens < 64);
        // One step per token: the first one had room for all that was to be computed again.
        let missing = ANSWER_TOKENS as usize - count;
        assert_eq!(rest.stats.steps_total, missing as u64, "{count}");
    }
}

/// One flipped bit costs the page it is in and those behind it.
#[test]
fn a_damaged_page_is_computed_again() {
    let file = TinyFile::of(&model(1));
    let whole = undisturbed(&file);
    for damaged in [0, 10, 22] {
        let arenas = Arenas::new();
        let tokens = begin(&arenas, &file, 20);
        let page_bytes = arenas.page_bytes();
        let place = Arenas::page_start() + u64::from(damaged) * page_bytes + page_bytes / 3;
        arenas.flip_bit(place);
        let rest = go_on(&arenas, &file, tokens);
        assert_eq!(rest.events, whole[20..], "page {damaged}");
        assert_eq!(rest.cached_tokens, damaged * 64);
        assert_eq!(rest.stats.pages_corrupt_total, 1);
    }
}

#[test]
fn a_damaged_entry_costs_its_page_and_a_damaged_table_all() {
    let file = TinyFile::of(&model(1));
    let whole = undisturbed(&file);
    let arenas = Arenas::new();
    let tokens = begin(&arenas, &file, 20);
    arenas.flip_bit(TableShape::bytes(7) as u64 + 100);
    let rest = go_on(&arenas, &file, tokens.clone());
    assert_eq!(rest.events, whole[20..]);
    assert_eq!(rest.cached_tokens, 7 * 64);
    assert_eq!(rest.stats.pages_corrupt_total, 1);

    // With its header and without.
    for start in [0, TableShape::bytes(0)] {
        let end = TableShape::bytes(usize::from(PAGES));
        let rubbish = vec![0xa7; end - start];
        arenas.kv().write_all_at(&rubbish, start as u64).unwrap();
        let rest = go_on(&arenas, &file, tokens.clone());
        assert_eq!(rest.events, whole[20..]);
        assert_eq!((rest.cached_tokens, rest.stats.pages_adopted_total), (0, 0));
    }
}

#[test]
fn pages_of_another_model_are_not_there() {
    let (first, second) = (TinyFile::of(&model(1)), TinyFile::of(&model(2)));
    let whole = undisturbed(&second);
    assert_ne!(whole, undisturbed(&first));
    let arenas = Arenas::new();
    begin(&arenas, &first, 20);
    let arenas = Arenas {
        kv: arenas.kv,
        ..Arenas::new()
    };
    let tokens = tokens_of(&whole)[..20].to_vec();
    let rest = go_on(&arenas, &second, tokens);
    assert_eq!(rest.events, whole[20..]);
    assert_eq!((rest.cached_tokens, rest.stats.pages_adopted_total), (0, 0));
    assert_eq!(rest.stats.pages_corrupt_total, 0);
}
