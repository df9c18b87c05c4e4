//! Rows 10-14, 43-46, 53, 56: clients that leave, storms, overload, shutdown.

use serde_json::json;

use super::chorus::{Chorus, is_whole};
use super::counted;
use crate::server::{Server, long_prompt};

#[test]
fn clients_that_leave_at_any_moment_disturb_nobody() {
    let server = Server::start(&["-np", "4"]);
    let chorus = Chorus::record(&server);
    chorus.stays_the_same(&server, || {
        let server = &server;
        let visits = |client: usize| {
            for visit in 0..25 {
                let mut body = long_prompt(&format!("Visit {visit} of {client}"), 400);
                body["stream"] = json!(true);
                // Some leave while they are queued or in prefill, some in mid-answer.
                crate::http::leave(server.port, &body, visit % 4);
            }
        };
        std::thread::scope(|scope| {
            for client in 0..4 {
                scope.spawn(move || visits(client));
            }
        });
    });
    assert_eq!(counted(&server, "relight_engine_restarts_total", ""), 0.0);
}

#[test]
fn a_client_that_leaves_as_the_engine_dies_leaves_no_ghost() {
    let server = Server::start(&["-np", "2"]);
    for events in 0..3 {
        let mut body = long_prompt("A ghost", 300);
        body["stream"] = json!(true);
        let mut answer = server.post("/v1/completions", &body);
        for _ in 0..=events {
            answer.event().expect("an event");
        }
        server.kill_engine();
        drop(answer);
        is_whole(&server);
    }
}

#[test]
fn overload_is_refused_at_once_and_probes_still_answer() {
    let server = Server::start(&["-np", "1", "--max-queue", "2"]);
    let body = long_prompt("Many at once", 200);
    let statuses: Vec<(u16, bool)> = std::thread::scope(|scope| {
        let many: Vec<_> = (0..40)
            .map(|_| {
                let (server, body) = (&server, &body);
                scope.spawn(move || {
                    let answer = server.post("/v1/completions", body);
                    let waits = answer.header("retry-after").is_some();
                    (answer.status, waits)
                })
            })
            .collect();
        assert_eq!(server.get("/livez").status, 200);
        assert_eq!(server.get("/health").status, 200);
        many.into_iter()
            .map(|one| one.join().expect("a client"))
            .collect()
    });
    let refused = statuses.iter().filter(|(status, ..)| *status == 503);
    assert!(refused.clone().count() > 0, "{statuses:?}");
    assert!(refused.clone().all(|(_, waits)| *waits));
    let served = statuses
        .iter()
        .filter(|(status, ..)| *status == 200)
        .count();
    assert_eq!(served + refused.count(), 40, "{statuses:?}");
    is_whole(&server);
}
