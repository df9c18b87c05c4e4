use proptest::prelude::*;

use super::*;
use crate::{Command, Event, Fault, Rejected, RequestId};

fn sample_events() -> Vec<Event> {
    vec![
        Event::Loading {
            done_bytes: 1,
            total_bytes: 2,
        },
        Event::Failed(Rejected {
            id: RequestId(7),
            fault: Fault::invalid("n", "too many"),
            report: None,
        }),
    ]
}

#[test]
fn values_survive_any_split_of_the_bytes() {
    let events = sample_events();
    let mut bytes = Vec::new();
    for event in &events {
        encode(event, &mut bytes).unwrap();
    }
    for piece_bytes in 1..bytes.len() {
        let mut decoder = FrameDecoder::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(piece_bytes) {
            decoder.push(piece);
            while let Some(event) = decoder.next_value::<Event>().unwrap() {
                found.push(event);
            }
        }
        assert_eq!(found, events, "pieces of {piece_bytes}");
        assert_eq!(decoder.unread_bytes(), 0);
    }
}

#[test]
fn a_length_above_the_limit_is_refused_before_its_bytes_arrive() {
    let mut decoder = FrameDecoder::default();
    decoder.push(&u32::MAX.to_le_bytes());
    let error = decoder.next_value::<Event>().unwrap_err();
    assert_eq!(
        error,
        FrameError::TooLong {
            found: u32::MAX as usize,
            limit: FRAME_BYTES_MAX
        }
    );
}

#[test]
fn bytes_after_a_value_are_refused() {
    let mut body = postcard::to_stdvec(&Command::Shutdown).unwrap();
    body.push(0);
    let mut bytes = Vec::new();
    seal(&body, &mut bytes).unwrap();
    let mut decoder = FrameDecoder::default();
    decoder.push(&bytes);
    assert_eq!(
        decoder.next_value::<Command>(),
        Err(FrameError::TrailingBytes { extra: 1 })
    );
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let mut bytes = Vec::new();
    for event in sample_events() {
        encode(&event, &mut bytes).unwrap();
    }
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut decoder = FrameDecoder::default();
        decoder.push(&flipped);
        let mut found = Vec::new();
        let end = loop {
            match decoder.next_value::<Event>() {
                Ok(Some(event)) => found.push(event),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        // A length that has grown is waited for; nothing after it is taken for a frame.
        assert!(end.is_some() || decoder.unread_bytes() > 0, "bit {bit}");
        assert!(sample_events().starts_with(&found), "bit {bit}");
        assert!(found.len() < sample_events().len(), "bit {bit}");
    }
}

#[test]
fn zeros_are_no_frame() {
    let mut decoder = FrameDecoder::default();
    decoder.push(&[0; 64]);
    let error = decoder.next_value::<Event>().unwrap_err();
    assert_eq!(error, FrameError::Corrupt { length: 0 });
}

proptest! {
    #[test]
    fn rubbish_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..256),
        is_sealed in any::<bool>(),
    ) {
        let mut decoder = FrameDecoder::default();
        if is_sealed {
            let mut frame = Vec::new();
            seal(&bytes, &mut frame).unwrap();
            decoder.push(&frame);
        } else {
            decoder.push(&bytes);
        }
        while let Ok(Some(event)) = decoder.next_value::<Event>() {
            drop(event);
        }
    }
}
