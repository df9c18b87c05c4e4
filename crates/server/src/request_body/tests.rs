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
    let refused = one_more().as_mut().poll(&mut cx);
    assert!(matches!(refused, Poll::Ready(Err(Refusal::BodiesTooMany))));
    assert!(read(LARGE_BODY_BYTES).as_mut().poll(&mut cx).is_pending());
    large.pop();
    assert!(one_more().as_mut().poll(&mut cx).is_pending());
}

#[tokio::test]
async fn large_bodies_are_parsed_like_small_ones_and_then_count_no_more() {
    let (reader, config) = (BodyReader::new(), ServerConfig::default());
    for bytes in [10, LARGE_BODY_BYTES + 1] {
        let body = Body::from(vec![b' '; bytes]);
        let body = reader.read(&config, &HeaderMap::new(), body).await.unwrap();
        let length = body.parse(|body| Ok(body.len())).await;
        assert_eq!(length, Ok(bytes));
        assert_eq!(reader.large_bodies.available_permits(), LARGE_BODIES_MAX);
    }
    let body = Body::from(vec![b' '; LARGE_BODY_BYTES + 1]);
    let body = reader.read(&config, &HeaderMap::new(), body).await.unwrap();
    let parsed = body.parse(|_body| -> Result<(), Refusal> { panic!("as a test") });
    assert_eq!(parsed.await, Err(Refusal::HandlerPanicked));
}
