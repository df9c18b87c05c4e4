//! Rows 14, 53, 57: mixed faults, cancels and long answers on a small pool, from a seed. Every
//! healthy request has the bytes it would have had; afterwards nothing is left.
//!
//! `cargo xtask chaos --seed N --requests N` runs this for longer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::chorus::is_whole;
use super::{counted, once};
use crate::http::now;
use crate::resume::stripped;
use crate::server::{Server, long_prompt};

const CLIENTS: usize = 6;
/// Finished requests between two faults.
const REQUESTS_PER_FAULT: usize = 4;
/// Faults that are nobody's own: (place, blow).
const FAULTS: [(&str, &str); 13] = [
    ("shared", "abort"),
    ("shared", "kill"),
    ("shared", "panic"),
    ("shared", "error"),
    ("shared", "segfault"),
    ("confirm", "panic"),
    ("confirm", "kill"),
    ("logits", "non-finite"),
    ("emit", "kill"),
    ("pipe", "garbage"),
    ("pipe", "cut"),
    ("pipe", "skip"),
    ("pipe", "repeat"),
];

/// A seeded sequence (xorshift64*, Marsaglia 2003, Vigna 2016).
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).expect("31 bits") % count
    }
}

#[derive(Debug, Default)]
struct Outcome {
    complete: usize,
    left: usize,
    /// Own faults that ended with an honest error.
    failed: usize,
    longest_pause: Duration,
}

fn songs() -> Vec<Value> {
    let mut songs: Vec<Value> = [20, 60, 120, 300]
        .into_iter()
        .map(|tokens| long_prompt(&format!("A song of {tokens} words about"), tokens))
        .collect();
    songs[1]["n"] = json!(2);
    songs[1]["temperature"] = json!(0.8);
    songs[1]["seed"] = json!(3);
    songs[2]["logprobs"] = json!(1);
    songs[2]["repetition_penalty"] = json!(1.2);
    for song in &mut songs {
        song["stream"] = json!(true);
        song["stream_options"] = json!({ "include_usage": true });
    }
    songs
}

/// What comes of one stream: its events, and the longest silence within.
fn listen(server: &Server, body: &Value) -> (u16, Vec<String>, Duration) {
    let mut answer = server.post("/v1/completions", body);
    let status = answer.status;
    if status != 200 {
        return (status, vec![answer.text()], Duration::ZERO);
    }
    let (mut events, mut longest, mut last) = (Vec::new(), Duration::ZERO, now());
    while let Some(event) = answer.event() {
        longest = longest.max(last.elapsed());
        last = now();
        events.push(event);
    }
    (status, events, longest)
}

struct Churn<'a> {
    server: &'a Server,
    songs: &'a [Value],
    expected: &'a [Vec<Value>],
    started: AtomicUsize,
    requests: usize,
}

impl Churn<'_> {
    /// One client: asks, leaves, provokes, until enough was asked by all.
    fn client(&self, mut dice: Dice, ended: &Sender<()>) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                return outcome;
            }
            let song = dice.below(self.songs.len());
            match dice.below(20) {
                0..5 => {
                    crate::http::leave(self.server.port, &self.songs[song], dice.below(40));
                    outcome.left += 1;
                }
                5 => {
                    self.provoke(number, &mut dice);
                    outcome.failed += 1;
                }
                _ => {
                    let (status, events, pause) = listen(self.server, &self.songs[song]);
                    assert_eq!(status, 200, "request {number}: {events:?}");
                    let found = stripped(events);
                    let expected = &self.expected[song];
                    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
                    assert!(
                        found == *expected,
                        "request {number}, song {song}: {differs:?}"
                    );
                    outcome.complete += 1;
                    outcome.longest_pause = outcome.longest_pause.max(pause);
                }
            }
            ended.send(()).expect("somebody counts");
        }
    }

    /// A request with a fault of its own must end in an error nobody can overlook.
    fn provoke(&self, number: usize, dice: &mut Dice) {
        let marker = format!("culprit {number}.");
        let phases = ["prepare", "admit", "sample", "detokenize", "emit"];
        let place = phases[dice.below(phases.len())];
        self.server.inject(&json!({
            "place": place, "blow": "panic", "marker": marker, "every_engine": true
        }));
        let mut body = long_prompt(&marker, 40);
        body["stream"] = json!(true);
        let (status, events, _pause) = listen(self.server, &body);
        let last = events.last().expect("an answer");
        assert!(
            status >= 500 || last.starts_with("{\"error\":"),
            "{place}: {status} {last}"
        );
        assert!(!events.iter().any(|event| event == "[DONE]"));
    }

    /// Strikes everybody at once, again and again, as requests end. One fault at a time: two
    /// that come from outside and hit the same request twice cannot be told from its own.
    fn strike(&self, mut dice: Dice, ended: &Receiver<()>) -> BTreeMap<String, usize> {
        let mut struck = BTreeMap::new();
        let mut strikes = self.strikes();
        while ended.iter().take(REQUESTS_PER_FAULT).count() == REQUESTS_PER_FAULT {
            let is_first = struck.is_empty();
            let is_calm = self.server.metric("relight_suspects", "") == 0.0;
            if !is_calm || (self.strikes() <= strikes && !is_first) {
                continue;
            }
            strikes = self.strikes();
            let (place, blow) = FAULTS[dice.below(FAULTS.len())];
            let mut order = once(place, blow);
            order["skip"] = json!(dice.below(30));
            self.server.inject(&order);
            *struck.entry(format!("{place} {blow}")).or_default() += 1;
        }
        struck
    }

    /// Orders that have been carried out so far.
    fn strikes(&self) -> f64 {
        [
            "relight_engine_restarts_total",
            "relight_latches_total",
            "relight_duplicate_events_total",
        ]
        .into_iter()
        .map(|name| counted(self.server, name, ""))
        .sum()
    }
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.expect("a resident size")
}

fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("descriptors")
        .count()
}

fn number(name: &str, default: usize) -> usize {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_is_lost_or_left_after_mixed_faults_cancels_and_long_answers() {
    let requests = number("RELIGHT_CHAOS_REQUESTS", 120);
    let seed = number("RELIGHT_CHAOS_SEED", 1) as u64;
    let server = Server::start(&[
        "-np",
        "4",
        "--pages",
        "40",
        "--hang-timeout",
        "2",
        "--max-restarts",
        "1000",
    ]);
    let songs = songs();
    let expected: Vec<Vec<Value>> = songs
        .iter()
        .map(|song| stripped(server.post("/v1/completions", song).events()))
        .collect();
    is_whole(&server);
    let front = server.pid();
    let (memory, open) = (resident_kib(front), descriptors(front));
    let churn = Churn {
        server: &server,
        songs: &songs,
        expected: &expected,
        started: AtomicUsize::new(0),
        requests,
    };
    let dice = |client: usize| {
        Dice(
            seed.wrapping_mul(0x9e37_79b9)
                .wrapping_add(client as u64 + 1),
        )
    };
    let (outcomes, struck) = std::thread::scope(|scope| {
        let (end, ended) = channel();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (churn, dice, end) = (&churn, dice(client), end.clone());
                scope.spawn(move || churn.client(dice, &end))
            })
            .collect();
        drop(end);
        let struck = churn.strike(dice(CLIENTS), &ended);
        let outcomes: Vec<Outcome> = clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .collect();
        (outcomes, struck)
    });
    is_whole(&server);
    report(&server, &outcomes, &struck);
    let grown = resident_kib(front).saturating_sub(memory);
    assert!(grown < 64 << 10, "the front has grown by {grown} KiB");
    let opened = descriptors(front).saturating_sub(open);
    assert!(opened < 8, "{opened} descriptors are left open");
    assert_eq!(counted(&server, "relight_quarantines_total", ""), 0.0);
}

fn report(server: &Server, outcomes: &[Outcome], struck: &BTreeMap<String, usize>) {
    let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    let longest = outcomes.iter().map(|outcome| outcome.longest_pause).max();
    println!("fault                 ordered");
    for (fault, count) in struck {
        println!("{fault:20}  {count:7}");
    }
    let engines = counted(server, "relight_engine_restarts_total", "");
    let latches = counted(server, "relight_latches_total", "");
    println!("engines lost {engines}, generators replaced {latches}");
    println!(
        "requests: {} complete and equal, {} left by their clients, {} failed by their own fault, 0 lost",
        sum(|outcome| outcome.complete),
        sum(|outcome| outcome.left),
        sum(|outcome| outcome.failed),
    );
    println!(
        "longest pause {:.2} s",
        longest.unwrap_or_default().as_secs_f64()
    );
}
