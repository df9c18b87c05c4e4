use relight_protocol::{ChoiceIndex, TokenId};

use super::*;

fn delta(index: u32) -> StreamEvent {
    StreamEvent::Delta(Delta {
        id: RequestId(1),
        choice: ChoiceIndex(0),
        token_index: index,
        token: TokenId(0),
        text_offset: index,
        text: "x".into(),
        logprobs: Vec::new(),
    })
}

fn stream(events_max: usize) -> (StreamSender, RequestStream, mpsc::Receiver<Message>) {
    let (sender, events) = StreamSender::channel(events_max).unwrap();
    let (inbox, messages) = mpsc::channel(2);
    let permit = inbox.try_reserve_owned().unwrap();
    let stream = RequestStream::new(RequestId(1), events, permit);
    (sender, stream, messages)
}

fn cancels(mut messages: mpsc::Receiver<Message>) -> usize {
    let mut count = 0;
    while let Ok(message) = messages.try_recv() {
        assert!(matches!(message, Message::Cancel { id } if id == RequestId(1)));
        count += 1;
    }
    count
}

#[test]
fn a_stream_dropped_before_its_end_cancels_once() {
    let (mut sender, stream, messages) = stream(4);
    sender.push(delta(0)).unwrap();
    drop(stream);
    assert_eq!(cancels(messages), 1);
}

#[test]
fn a_stream_read_to_its_end_does_not_cancel() {
    let (sender, mut stream, messages) = stream(4);
    sender.finish(StreamEvent::Finished(Usage::default()));
    assert!(stream.try_next().unwrap().is_last());
    assert_eq!(stream.try_next(), None);
    drop(stream);
    assert_eq!(cancels(messages), 0);
}

#[test]
fn after_a_gap_a_reader_gets_nothing_but_the_last_event() {
    let (mut sender, mut stream, messages) = stream(2);
    sender.push(delta(0)).unwrap();
    sender.push(delta(1)).unwrap();
    assert_eq!(sender.push(delta(2)), Err(ReaderTooSlow));
    assert_eq!(stream.try_next(), Some(delta(0)));
    sender.push(delta(3)).unwrap();
    sender.finish(StreamEvent::Failed(Fault::Cancelled.into()));
    assert_eq!(stream.try_next(), Some(delta(1)));
    assert_eq!(
        stream.try_next(),
        Some(StreamEvent::Failed(Fault::Cancelled.into()))
    );
    drop(stream);
    assert_eq!(cancels(messages), 0);
}

#[test]
fn a_stream_that_loses_its_supervisor_ends_in_a_failure() {
    let (sender, mut stream, _messages) = stream(2);
    drop(sender);
    assert_eq!(
        stream.try_next(),
        Some(StreamEvent::Failed(Fault::EngineUnavailable.into()))
    );
    assert_eq!(stream.try_next(), None);
}
