use expect_test::expect;
use relight_protocol::TokenId;

use super::*;

fn token(token: u32, logprob: f32, bytes: &[u8]) -> TokenLogprob {
    let (token, bytes) = (TokenId(token), bytes.to_vec());
    TokenLogprob {
        token,
        logprob,
        bytes,
    }
}

#[test]
fn a_chat_lists_the_best_with_the_chosen_among_them() {
    let chosen = [
        token(5, -2.0, b"b"),
        token(4, -0.25, b"a"),
        token(5, -2.0, b"b"),
        token(6, -3.0, b"c"),
    ];
    let logprobs = ChatLogprobs::new([chosen.as_slice()], 2).unwrap();
    expect![[r#"{"content":[{"token":"b","logprob":-2.0,"bytes":[98],"top_logprobs":[{"token":"a","logprob":-0.25,"bytes":[97]},{"token":"b","logprob":-2.0,"bytes":[98]}]}],"refusal":null}"#]].assert_eq(&serde_json::to_string(&logprobs).unwrap());
    let unlikely = [
        token(5, f32::NEG_INFINITY, b"\xe2\x82"),
        token(4, -0.25, b"a"),
    ];
    let logprobs = ChatLogprobs::new([unlikely.as_slice()], 1).unwrap();
    expect![[r#"{"content":[{"token":"�","logprob":-9999.0,"bytes":[226,130],"top_logprobs":[{"token":"a","logprob":-0.25,"bytes":[97]}]}],"refusal":null}"#]].assert_eq(&serde_json::to_string(&logprobs).unwrap());
    assert!(ChatLogprobs::new([[].as_slice()], 1).is_none());
}

#[test]
fn a_completion_lists_columns_and_always_the_chosen() {
    let mut logprobs = CompletionLogprobs::default();
    logprobs.push(
        &[
            token(5, -2.0, b"b"),
            token(4, -0.25, b"a"),
            token(6, -3.0, b"c"),
        ],
        0,
        1,
    );
    logprobs.push(
        &[token(5, -2.5, b"\xe2\x82"), token(9, f32::NAN, b"\xe2\x82")],
        1,
        2,
    );
    logprobs.push(&[], 1, 2);
    expect![[r#"{"text_offset":[0,1],"token_logprobs":[-2.0,-2.5],"tokens":["b","bytes:\\xe2\\x82"],"top_logprobs":[{"a":-0.25,"b":-2.0},{"bytes:\\xe2\\x82":-2.5}]}"#]].assert_eq(&serde_json::to_string(&logprobs.into_option()).unwrap());
    assert!(CompletionLogprobs::default().into_option().is_none());
}
