//! The frame decoder on arbitrary bytes in arbitrary pieces, and on arbitrary values in frames
//! that are whole: every value that it yields survives being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relight_protocol::{Command, Event, FrameDecoder, frame};
use serde::{Serialize, de::DeserializeOwned};

/// Pieces of up to 255 bytes, their lengths taken from the bytes themselves.
fn feed<T: Serialize + DeserializeOwned>(mut bytes: &[u8]) {
    let mut decoder = FrameDecoder::default();
    while let Some((length, rest)) = bytes.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        decoder.push(piece);
        bytes = rest;
        loop {
            match decoder.next_value::<T>() {
                Ok(Some(value)) => rewrite(&value),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A frame whose checksum holds, which chance would never find.
fn feed_sealed<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let mut sealed = Vec::new();
    frame::seal(bytes, &mut sealed).expect("inputs are short");
    let mut decoder = FrameDecoder::default();
    decoder.push(&sealed);
    if let Ok(Some(value)) = decoder.next_value::<T>() {
        rewrite(&value);
    }
}

/// Compared as bytes: values may hold NaN.
fn rewrite<T: Serialize + DeserializeOwned>(value: &T) {
    let mut first = Vec::new();
    frame::encode(value, &mut first).expect("a value that was read can be written");
    let mut decoder = FrameDecoder::default();
    decoder.push(&first);
    let read: Option<T> = decoder.next_value().expect("a written frame is a frame");
    let mut second = Vec::new();
    frame::encode(&read.expect("a written frame is whole"), &mut second).expect("as above");
    assert_eq!(first, second);
}

fuzz_target!(|bytes: &[u8]| {
    feed::<Command>(bytes);
    feed::<Event>(bytes);
    feed_sealed::<Command>(bytes);
    feed_sealed::<Event>(bytes);
});
