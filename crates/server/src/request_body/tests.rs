use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use axum::body::Bytes;

use super::*;

/// A body that sends one piece and then nothing more for now.
struct Unfinished(Option<Bytes>);

impl Stream for Unfinished {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.take() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn few_large_bodies_are_read_at_once_but_any_number_of_small_ones() {
    let (reader, config, headers) = (BodyReader::new(), ServerConfig::default(), HeaderMap::new());
    let read = |bytes: usize| {
        let piece = Bytes::from(vec![b' '; bytes]);
        let body = Body::from_stream(Unfinished(Some(piece)));
        Box::pin(reader.read(&config, &headers, body))
    };
    let mut cx = Context::from_waker(Waker::noop());
    let mut large: Vec<_> = (0..LARGE_BODIES_MAX)
        .map(|_| read(LARGE_BODY_BYTES + 1))
        .collect();
    for reading in &mut large {
        assert!(reading.as_mut().poll(&mut cx).is_pending());
    }
    let one_more = || read(LARGE_BODY_BYTES + 1);
    assert_eq!(
        one_more().as_mut().poll(&mut cx),
        Poll::Ready(Err(Refusal::BodiesTooMany))
    );
    assert!(read(LARGE_BODY_BYTES).as_mut().poll(&mut cx).is_pending());
    large.pop();
    assert!(one_more().as_mut().poll(&mut cx).is_pending());
}
