//! How runs of triggers are run: in turns, tried again as the trigger says, and what becomes of those that are given up.

use fanfold_tests::{
    cluster::{PATIENCE, until as until_holds},
    platform::{Platform, crate_folder},
    triggers::{inputs, put, runs, set, show, until},
};
use serde_json::{Value, json};

const MANIFEST: &str = "name = \"misbehave\"\ntimeout = \"10m\"\n[retry]\nattempts = 1\n";

/// Posts an event about something, whose data says what the function shall do; its run.
async fn post(platform: &Platform, id: &str, subject: &str, act: &str) -> String {
    let event = json!({
        "specversion": "1.0", "id": id, "source": "/test", "type": "act", "subject": subject, "data": { "do": act },
    });
    let kind = [("content-type", "application/cloudevents+json")];
    let answer = platform.send("POST", "/v1/events", &kind, event.to_string()).await.expect(202).json();
    answer["outcomes"][0]["invocation"].as_str().expect("a run").to_owned()
}

async fn state(platform: &Platform, run: &str) -> Value {
    platform.get(&format!("/v1/invocations/{run}")).await.expect(200).json()["state"].clone()
}

async fn cancel(platform: &Platform, run: &str) {
    platform.send("POST", &format!("/v1/invocations/{run}/cancel"), &[], "").await.expect(200);
}

async fn acts(platform: &Platform, more: Value) {
    let mut definition =
        json!({ "kind": "event", "function": "misbehave", "filter": { "type": "act" }, "input": "data" });
    definition.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    set(platform, "acts", definition).await;
}

async fn until_running(platform: &Platform, run: &str) {
    assert!(until_holds(PATIENCE, async || state(platform, run).await == "running").await, "it begins");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_with_one_ordering_key_take_turns() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy_as("misbehave", MANIFEST).await;
    acts(&platform, json!({ "ordering_key": "subject" })).await;
    let first = post(&platform, "1", "a", "sleep").await;
    let second = post(&platform, "2", "a", "nothing").await;
    let third = post(&platform, "3", "a", "sleep").await;
    // Another key waits for nobody.
    let other = post(&platform, "4", "b", "nothing").await;
    assert_eq!(platform.ended(&other).await["state"], "succeeded");
    until_running(&platform, &first).await;

    // The same ones have to wait after a crash.
    platform.kill();
    let platform = Platform::start(dir.path());
    until_running(&platform, &first).await;
    let other = post(&platform, "5", "b", "nothing").await;
    assert_eq!(platform.ended(&other).await["state"], "succeeded");
    assert_eq!(
        (state(&platform, &second).await, state(&platform, &third).await),
        (json!("queued"), json!("queued"))
    );
    let shown = show(&platform, "acts").await;
    assert_eq!(shown["unfinished"], 3, "{shown}");
    let metrics = platform.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("fanfold_trigger_runs_unfinished{trigger=\"acts\"} 3"), "{metrics}");

    cancel(&platform, &first).await;
    assert_eq!(platform.ended(&second).await["state"], "succeeded");
    until_running(&platform, &third).await;
    cancel(&platform, &third).await;
    until(&platform, "acts", |trigger| trigger["unfinished"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_bounds_its_runs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy_as("misbehave", MANIFEST).await;
    acts(&platform, json!({ "concurrency": 2 })).await;
    let (first, second) =
        (post(&platform, "1", "a", "sleep").await, post(&platform, "2", "b", "sleep").await);
    let third = post(&platform, "3", "c", "nothing").await;
    until_running(&platform, &first).await;
    until_running(&platform, &second).await;
    // The function has room: a call that no trigger made runs.
    let called =
        platform.send("POST", "/function/misbehave", &[], json!({ "do": "nothing" }).to_string()).await;
    called.expect(200);
    assert_eq!(state(&platform, &third).await, "queued");
    // One that grows too old while it waits is given up, and so are those behind it.
    acts(&platform, json!({ "concurrency": 2, "retry": { "max_age": "1s" } })).await;
    let old = [post(&platform, "5", "e", "nothing").await, post(&platform, "6", "f", "nothing").await];
    for run in &old {
        assert_eq!(platform.ended(run).await["error"]["code"], "deadline");
    }
    acts(&platform, json!({ "concurrency": 2 })).await;
    // Taken away while it waits, it lets the next one pass.
    let fourth = post(&platform, "4", "d", "nothing").await;
    cancel(&platform, &third).await;
    cancel(&platform, &first).await;
    assert_eq!(platform.ended(&fourth).await["state"], "succeeded");
    cancel(&platform, &second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_shows_what_happened_and_can_be_removed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy_as("misbehave", MANIFEST).await;
    acts(&platform, json!({ "retry": { "attempts": 3, "backoff": "1ms" } })).await;
    let dead = post(&platform, "1", "a", "retry").await;
    assert_eq!(platform.ended(&dead).await["state"], "failed");
    let letter = format!("/v1/dead-letters/{dead}");
    let shown = platform.get(&letter).await.expect(200).json();
    assert_eq!((&shown["trigger"], &shown["attempts"]), (&json!("acts"), &json!(3)), "the trigger's policy");
    let attempts = shown["failed_attempts"].as_array().expect("attempts");
    assert!(
        attempts.iter().all(|attempt| attempt["error"]["kind"] == "guest") && !attempts.is_empty(),
        "{shown}"
    );
    assert_eq!(shown["content_type"], "application/json");
    let input = platform.get(&format!("{letter}/input")).await.expect(200).json();
    assert_eq!(input, json!({ "do": "retry" }));

    platform.send("DELETE", &letter, &[], "").await.expect(204);
    platform.get(&letter).await.expect_problem(404, "not-found", "dead-letter", "there is no dead letter");
    assert_eq!(runs(&show(&platform, "acts").await).len(), 0, "nothing of it is left");
    platform.kill();
    let platform = Platform::start(dir.path());
    assert_eq!(platform.get("/v1/dead-letters").await.expect(200).json()["items"], json!([]));
    platform.send("DELETE", &letter, &[], "").await.expect_problem(
        404,
        "not-found",
        "dead-letter",
        "there is no",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_counted_at_night() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("wordcount").await.expect(201);
    put(&platform, "texts/a", "to be or not to be").await;
    let file = crate_folder().join("../functions/wordcount/nightly.toml");
    let file = file.to_str().expect("a path");
    let added =
        platform.cli(&["trigger", "add", "nightly", "--file", file, "--json"]).output().expect("it runs");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let mut definition = show(&platform, "nightly").await["definition"].clone();
    assert!(show(&platform, "nightly").await["next_at_ms"].is_u64());
    // The same, without waiting for the night.
    let keys = definition.as_object_mut().expect("an object");
    keys.extend([("kind".to_owned(), json!("interval")), ("every".to_owned(), json!("1s"))]);
    keys.retain(|key, _| key != "schedule" && key != "timezone");
    set(&platform, "nightly", definition).await;
    until(&platform, "nightly", |trigger| !runs(trigger).is_empty()).await;
    assert_eq!(inputs(&platform, "nightly").await[0]["words"], 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_mean_nothing_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy_as("misbehave", MANIFEST).await;
    let event = json!({ "kind": "event", "function": "misbehave", "filter": { "type": "a" } });
    let cases = [
        (json!({ "concurrency": 0 }), "concurrency is zero"),
        (json!({ "retry": { "attempts": 0 } }), "retry.attempts is zero"),
        (json!({ "ordering_key": "subject", "batch": { "max": 2 } }), "leave batch out"),
        (json!({ "retry": { "tries": 3 } }), "unknown field `tries`"),
    ];
    for (more, wanted) in cases {
        let mut definition = event.clone();
        definition.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = platform.send("PUT", "/v1/triggers/bad", &[], definition.to_string()).await;
        assert!(answer.status == 400 && answer.text().contains(wanted), "{}", answer.text());
    }
}
