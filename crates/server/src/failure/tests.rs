use expect_test::expect;
use relight_protocol::Phase;
use relight_supervisor::FaultId;

use super::*;

#[test]
fn every_fault_has_its_status() {
    let faults = [
        Fault::invalid("stop", "no"),
        Fault::ContextFull {
            prompt_tokens: 9000,
            context_tokens: 2048,
        },
        Fault::Overloaded {
            resource: Overload::QueueFull,
            retry_after_s: 3,
        },
        Fault::Overloaded {
            resource: Overload::QueueTooOld,
            retry_after_s: 3,
        },
        Fault::Overloaded {
            resource: Overload::ReaderTooSlow,
            retry_after_s: 1,
        },
        Fault::Overloaded {
            resource: Overload::Draining,
            retry_after_s: 5,
        },
        Fault::Cancelled,
        Fault::DeadlineExceeded { limit_ms: 5 },
        Fault::ModelInvalid {
            message: "m".to_owned(),
        },
        Fault::EngineUnavailable,
        Fault::EngineCrashed,
        Fault::EngineStalled,
        Fault::Quarantined,
        Fault::NonFiniteLogits,
        Fault::OutOfMemory,
        Fault::Internal {
            phase: Phase::Sample,
        },
    ];
    let line = |fault: &Fault| {
        let Status {
            http,
            kind,
            code,
            retry,
        } = status_of(&fault.clone().into());
        format!("{} {kind} {code} {retry:?}\n", http.as_u16())
    };
    expect![[r#"
        400 invalid_request_error invalid_value Never
        400 invalid_request_error context_length_exceeded Never
        503 server_error overloaded After(3)
        503 server_error overloaded After(3)
        503 server_error reader_too_slow After(1)
        503 server_error draining After(5)
        499 server_error cancelled Never
        504 server_error deadline_exceeded Never
        503 server_error model_invalid Never
        503 server_error engine_unavailable After(2)
        500 server_error worker_crashed Never
        500 server_error worker_stalled Never
        422 invalid_request_error request_quarantined Never
        503 server_error non_finite_logits After(1)
        503 server_error insufficient_memory After(1)
        503 server_error internal_error After(1)
    "#]]
    .assert_eq(&faults.iter().map(line).collect::<String>());
}

#[test]
fn a_guilty_request_is_told_not_to_come_again_and_where_to_read_why() {
    let failure = Failure::Failed {
        failure: RequestFailure {
            fault: Fault::NonFiniteLogits,
            guilty: true,
            fault_id: Some(FaultId(7)),
        },
        prompt_param: None,
    };
    let response = failure.to_response("req-1", None);
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()["x-should-retry"], "false");
    let json = failure.to_json("req-1", None);
    assert_eq!(json["error"]["fault_id"], "f7");
    assert_eq!(json["error"]["retryable"], false);
}

#[test]
fn every_refusal_has_its_status() {
    let refusals = [
        Refusal::invalid("n", "no"),
        Refusal::unsupported("tools", "no"),
        Refusal::BodyTooLarge { limit_bytes: 5 },
        Refusal::BodyTooSlow { limit_ms: 5 },
        Refusal::BodyBroken,
        Refusal::BodiesTooMany,
        Refusal::KeyMissing,
        Refusal::KeyWrong,
        Refusal::ModelUnknown {
            name: "a".to_owned(),
            served: "b".to_owned(),
        },
        Refusal::ModelLoading,
        Refusal::EndpointUnknown {
            path: "/x".to_owned(),
        },
        Refusal::MethodNotAllowed {
            method: "PUT".to_owned(),
            path: "/x".to_owned(),
        },
        Refusal::HandlerPanicked,
    ];
    let line = |refusal: &Refusal| {
        let Status {
            http,
            kind,
            code,
            retry,
        } = status_of_refusal(refusal);
        let param = refusal.param();
        format!(
            "{} {kind} {code} {retry:?} {param:?} {refusal}\n",
            http.as_u16()
        )
    };
    expect![[r#"
        400 invalid_request_error invalid_value Never Some("n") no
        400 invalid_request_error unsupported_value Never Some("tools") no
        413 invalid_request_error request_too_large Never None the body has more than 5 bytes
        408 invalid_request_error request_timeout Never None the body did not arrive within 5 ms
        400 invalid_request_error body_incomplete Never None the body ended before it was complete
        503 server_error overloaded After(1) None too many large bodies are being read, try again in a moment
        401 invalid_request_error invalid_api_key Never None an API key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`
        401 invalid_request_error invalid_api_key Never None the API key is not valid
        404 invalid_request_error model_not_found Never Some("model") the model 'a' does not exist; this server serves 'b'
        503 server_error model_loading After(2) None the model is still being loaded
        404 invalid_request_error not_found Never None no such endpoint: /x
        405 invalid_request_error method_not_allowed Never None /x does not answer PUT
        500 server_error internal_error Never None an internal error while the request was handled
    "#]].assert_eq(&refusals.iter().map(line).collect::<String>());
}

#[test]
fn a_prompt_that_does_not_fit_is_told_both_numbers_and_its_field() {
    let failure = Failure::Failed {
        failure: RequestFailure::from(Fault::ContextFull {
            prompt_tokens: 9000,
            context_tokens: 2048,
        }),
        prompt_param: Some("messages"),
    };
    let json = failure.to_json("req-1", None);
    expect![[r#"
        {
          "error": {
            "message": "this model's maximum context length is 2048 tokens, but the prompt has 9000 tokens",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
            "request_id": "req-1",
            "retryable": false,
            "n_prompt_tokens": 9000,
            "n_ctx": 2048
          }
        }"#]].assert_eq(&format!("{json:#}"));
}

#[test]
fn waits_are_told_within_bounds() {
    let answer = |retry_after_s| {
        let resource = Overload::QueueFull;
        let fault = Fault::Overloaded {
            resource,
            retry_after_s,
        };
        let failure = Failure::Failed {
            failure: fault.into(),
            prompt_param: None,
        };
        failure.to_response("req-1", None).headers()[header::RETRY_AFTER].clone()
    };
    assert_eq!(answer(0), "1");
    assert_eq!(answer(4), "4");
    assert_eq!(answer(4000), "10");
}
