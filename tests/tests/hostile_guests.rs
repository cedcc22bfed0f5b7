//! Guests that loop, trap, eat memory, recurse, answer nonsense or flood their logs get their own typed error, and their
//! neighbours never notice.

use fanfold_tests::platform::Platform;

/// What a guest does, and the answer's kind and code.
const CASES: [(&str, &str, &str); 7] = [
    ("loop", "limit", "timeout"),
    ("trap", "guest", "trap"),
    ("allocate", "limit", "out-of-memory"),
    ("recurse", "limit", "stack-overflow"),
    ("flood", "limit", "log-overflow"),
    ("error", "guest", "error-returned"),
    ("panic", "guest", "trap"),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_gets_its_own_error_and_neighbours_go_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut platform = Platform::start(dir.path());
    platform.deploy("echo").await;
    platform.deploy_as("misbehave", "name = \"misbehave\"\ntimeout = \"1s\"\n").await;
    for (act, kind, code) in CASES {
        let body = format!("{{\"do\": \"{act}\"}}");
        let (bad, ()) = futures::join!(platform.post("/function/misbehave", body.clone()), async {
            for n in 0..50 {
                let text = format!("neighbour {n}");
                let answer = platform.post("/function/echo", text.clone()).await.expect(200);
                assert_eq!(answer.text(), text);
            }
        });
        let status = bad.status;
        assert!(status >= 500, "{act}: {status} {}", bad.text());
        bad.expect_problem(status, kind, code, "");
    }
    assert!(platform.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_ones_end_in_the_dead_letter_list_and_can_be_retried() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform
        .deploy_as("misbehave", "name = \"misbehave\"\n[retry]\nattempts = 2\nbackoff = \"10ms\"\n")
        .await;
    let id = platform.invoke_async("misbehave", r#"{"do": "trap"}"#).await;
    let view = platform.ended(&id).await;
    assert_eq!(view["state"], "failed", "{view}");
    assert_eq!(view["attempts"], 2, "{view}");
    assert_eq!(view["error"]["code"], "trap", "{view}");
    let listed = platform.get("/v1/dead-letters").await.expect(200).json();
    let letter =
        listed["items"].as_array().and_then(|items| items.iter().find(|item| item["id"] == id.as_str()));
    assert_eq!(letter.expect("a dead letter")["attempts"], 2);
    let again = platform.post(&format!("/v1/dead-letters/{id}/retry"), "").await.expect(202).json();
    let again = again["id"].as_str().expect("an id").to_owned();
    assert_ne!(again, id);
    assert_eq!(platform.ended(&again).await["state"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_functions_that_answer_nonsense() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy_as("misbehave-http", "name = \"misbehave-http\"\ntimeout = \"1s\"\n").await;
    let none = platform.get("/function/misbehave-http/silent").await;
    none.expect_problem(502, "guest", "malformed-response", "");
    let never = platform.get("/function/misbehave-http/never").await;
    never.expect_problem(504, "limit", "timeout", "");
    platform.get("/healthz").await.expect(200);
}
