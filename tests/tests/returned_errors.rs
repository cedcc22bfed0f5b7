//! What failed calls tell their callers: errors that functions return, and what failed functions have logged.

use fanfold_tests::platform::{Answer, Platform};
use serde_json::json;

fn platform() -> (Platform, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    (Platform::start(dir.path()), dir)
}

/// A function may say that its caller is wrong. Trying again would not help, so nothing does.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_may_blame_its_caller_and_that_is_final() {
    let (platform, _dir) = platform();
    platform
        .deploy_as("thumbnail", "name = \"thumbnail\"\n[retry]\nattempts = 3\nbackoff = \"10ms\"\n")
        .await;
    let direct = platform.post("/function/thumbnail", "no picture").await;
    direct.expect_problem(400, "invalid", "error-returned", "neither a JPEG nor a PNG");
    let keyed = platform.send("POST", "/function/thumbnail", &[("idempotency-key", "k")], "no picture").await;
    keyed.expect_problem(400, "invalid", "error-returned", "neither a JPEG nor a PNG");

    let id = platform.invoke_async("thumbnail", "no picture").await;
    let view = platform.ended(&id).await;
    assert_eq!((&view["state"], &view["attempts"]), (&json!("failed"), &json!(1)), "{view}");
    let output = platform.get(&format!("/v1/invocations/{id}/output")).await;
    output.expect_problem(400, "invalid", "error-returned", "neither a JPEG nor a PNG");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_not_there_is_not_looked_for_twice() {
    let (platform, _dir) = platform();
    platform.deploy("echo").await;
    let call = platform.post("/function/echo?entry=nope", "x").await;
    call.expect_problem(404, "not-found", "error-returned", "nope");

    let accepted = platform.post("/async-function/echo?entry=nope", "x").await.expect(202).json();
    let request = json!({ "function": "echo", "entry": "nope", "input": 1 }).to_string();
    let job = platform.post("/v1/jobs", request).await.expect(202).json();
    for id in [&accepted["id"], &job["id"]] {
        let view = platform.ended(id.as_str().expect("an id")).await;
        assert_eq!((&view["state"], &view["attempts"]), (&json!("failed"), &json!(1)), "{view}");
        assert_eq!(view["error"]["kind"], "not-found", "{view}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_synchronous_calls_keep_their_logs() {
    let (platform, _dir) = platform();
    platform.deploy("misbehave").await;
    let failed = platform.post("/function/misbehave", r#"{"do": "panic"}"#).await.expect(502);
    let logs = logs_of(&platform, &failed).await;
    assert!(logs.contains("asked to panic"), "{logs}");
    let flooded = platform.post("/function/misbehave", r#"{"do": "flood"}"#).await.expect(502);
    let logs = logs_of(&platform, &flooded).await;
    assert!(logs.lines().count() > 100 && logs.contains("flood flood"), "{} bytes", logs.len());
}

async fn logs_of(platform: &Platform, answer: &Answer) -> String {
    let id = answer.headers["fanfold-invocation"].to_str().expect("ASCII");
    platform.get(&format!("/v1/invocations/{id}/logs")).await.expect(200).text()
}
