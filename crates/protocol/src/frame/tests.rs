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
    let mut bytes = Vec::new();
    encode(&Command::Shutdown, &mut bytes).unwrap();
    bytes.push(0);
    bytes[0] += 1;
    let mut decoder = FrameDecoder::default();
    decoder.push(&bytes);
    assert_eq!(
        decoder.next_value::<Command>(),
        Err(FrameError::TrailingBytes { extra: 1 })
    );
}

proptest! {
    #[test]
    fn rubbish_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let mut decoder = FrameDecoder::default();
        decoder.push(&bytes);
        while let Ok(Some(event)) = decoder.next_value::<Event>() {
            drop(event);
        }
    }
}
