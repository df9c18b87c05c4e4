//! The orders of this process, and what carries them out.

#![expect(
    clippy::panic,
    clippy::exit,
    clippy::infinite_loop,
    clippy::disallowed_methods,
    reason = "things go wrong here on purpose"
)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relight_protocol::injection::{Armed, Blow, Injection, Place};
use relight_protocol::{Delta, Event, Fault, Phase, Prompt, Request, RequestId, frame};
use rustix::process::Signal;

use crate::backend::BackendError;

const EXIT_CODE: i32 = 7;
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Orders {
    armed: Vec<Armed>,
    /// Which markers a request has.
    marked: HashMap<RequestId, Vec<String>>,
}

/// Half a frame was pushed: the process ends once it is written.
static IS_CUT: AtomicBool = AtomicBool::new(false);
static ORDERS: Mutex<Option<Orders>> = Mutex::new(None);

fn with_orders<T>(work: impl FnOnce(&mut Orders) -> T) -> T {
    let mut orders: MutexGuard<'_, _> = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
    work(orders.get_or_insert_default())
}

/// Takes an order.
pub(crate) fn arm(injection: Injection) {
    tracing::warn!(?injection, "a fault is ordered");
    with_orders(|orders| orders.armed.push(Armed::new(injection)));
}

/// Notes the markers of a request, among those that are ordered by now.
pub(crate) fn meet(id: RequestId, request: &Request) {
    let text = match &request.prompt {
        Prompt::Chat(chat) => &chat.messages_json,
        Prompt::Text(text) => text,
        Prompt::Tokens(_) => return,
    };
    with_orders(|orders| {
        let markers = orders.armed.iter().filter_map(|armed| {
            let marker = armed.injection().marker.as_ref()?;
            text.contains(marker.as_str()).then(|| marker.clone())
        });
        let markers: Vec<String> = markers.collect();
        if !markers.is_empty() {
            orders.marked.insert(id, markers);
        }
    });
}

/// Work for these requests passes `place`: the blow that is due, and for whom.
fn due(place: Place, requests: &[RequestId]) -> Option<(Blow, Option<RequestId>)> {
    with_orders(|orders| {
        let Orders { armed, marked } = orders;
        armed.iter_mut().find_map(|armed| {
            let mut victim = None;
            let blow = armed.pass(place, |marker| {
                let has = |id: &&RequestId| {
                    let markers = marked.get(id);
                    markers.is_some_and(|markers| markers.iter().any(|own| own == marker))
                };
                victim = requests.iter().find(has).copied();
                victim.is_some()
            })?;
            Some((blow, victim))
        })
    })
}

/// Does what needs no help from the place; the blow is returned if it does.
fn strike(place: Place, blow: Blow) -> Option<Blow> {
    tracing::warn!(?place, ?blow, "an ordered fault strikes");
    match blow {
        Blow::Panic => panic!("ordered at {place:?}"),
        Blow::Abort => std::process::abort(),
        Blow::Kill => signal_for_ever(Signal::KILL),
        Blow::Segfault => signal_for_ever(Signal::SEGV),
        Blow::StackOverflow => {
            black_box(deep(u64::MAX));
        }
        Blow::Exhaust => {
            black_box(Vec::<u8>::with_capacity(black_box(
                isize::MAX.unsigned_abs(),
            )));
        }
        Blow::Exit => std::process::exit(EXIT_CODE),
        Blow::Hang => loop {
            std::hint::spin_loop();
        },
        Blow::Pause => std::thread::sleep(PAUSE),
        Blow::Error
        | Blow::NonFinite
        | Blow::Garbage
        | Blow::Cut
        | Blow::WrongId
        | Blow::Repeat
        | Blow::Skip => return Some(blow),
    }
    None
}

/// Rust's own handler of SIGSEGV, which looks for stack overflows, lets the first one go.
fn signal_for_ever(signal: Signal) -> ! {
    loop {
        rustix::process::kill_process(rustix::process::getpid(), signal).ok();
    }
}

fn deep(levels: u64) -> u64 {
    let pad = black_box([levels; 64]);
    if levels == 0 {
        return pad[0];
    }
    deep(levels - 1).wrapping_add(pad[63])
}

fn pass(place: Place, requests: &[RequestId]) -> Option<(Blow, Option<RequestId>)> {
    let (blow, victim) = due(place, requests)?;
    Some((strike(place, blow)?, victim))
}

/// Before the model is loaded.
pub(crate) fn load() {
    pass(Place::Load, &[]);
}

/// After a command was read.
pub(crate) fn received() {
    pass(Place::Command, &[]);
}

/// A request comes to a private phase.
pub(crate) fn private(phase: Phase, request: RequestId) -> Result<(), Fault> {
    let place = match phase {
        Phase::Prepare => Place::Prepare,
        Phase::Admit => Place::Admit,
        Phase::Sample => Place::Sample,
        Phase::Detokenize => Place::Detokenize,
        Phase::Emit => Place::Emit,
    };
    match pass(place, &[request]) {
        Some((Blow::Error, _victim)) => Err(Fault::OutOfMemory),
        _ => Ok(()),
    }
}

/// Before the forward pass for these requests.
pub(crate) fn shared(requests: impl Iterator<Item = RequestId>) -> Result<(), BackendError> {
    let requests: Vec<RequestId> = requests.collect();
    match pass(Place::Shared, &requests) {
        Some((Blow::Error, _victim)) => Err(BackendError::Device {
            message: "ordered".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// After it, before its pages are sealed.
pub(crate) fn confirm(requests: impl Iterator<Item = RequestId>) {
    let requests: Vec<RequestId> = requests.collect();
    pass(Place::Confirm, &requests);
}

/// Makes logits not a number: `rows` names the request of each.
pub(crate) fn spoil(logits: &mut [f32], vocabulary: usize, rows: impl Iterator<Item = RequestId>) {
    let rows: Vec<RequestId> = rows.collect();
    let Some((Blow::NonFinite, victim)) = pass(Place::Logits, &rows) else {
        return;
    };
    for (row, id) in logits.chunks_exact_mut(vocabulary.max(1)).zip(rows) {
        if victim.is_none_or(|victim| victim == id) {
            row.fill(f32::NAN);
        }
    }
}

/// An event leaves. False if it is not to be sent; what is sent instead is in `buffer`.
pub(crate) fn outgoing(event: &Event, buffer: &mut Vec<u8>) -> bool {
    let Event::Delta(delta) = event else {
        return true;
    };
    let Some((blow, _victim)) = pass(Place::Pipe, &[delta.id]) else {
        return true;
    };
    match blow {
        Blow::Garbage => buffer.extend([0xff; 64]),
        Blow::Cut => {
            encode(event, buffer);
            buffer.truncate(buffer.len().saturating_sub(3));
            IS_CUT.store(true, Ordering::Relaxed);
        }
        Blow::WrongId => encode(
            &Event::Delta(Delta {
                id: RequestId(delta.id.0 + (1 << 40)),
                ..delta.clone()
            }),
            buffer,
        ),
        Blow::Repeat => {
            encode(event, buffer);
            encode(event, buffer);
        }
        _ => {}
    }
    false
}

/// What was pushed is written.
pub(crate) fn flushed() {
    if IS_CUT.load(Ordering::Relaxed) {
        std::process::exit(EXIT_CODE);
    }
}

fn encode(event: &Event, buffer: &mut Vec<u8>) {
    if let Err(error) = frame::encode(event, buffer) {
        tracing::error!(%error, "an ordered fault does not fit a frame");
    }
}
