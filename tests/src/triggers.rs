//! Triggers of a platform: what tests of them do again and again.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{cluster::PATIENCE, platform::Platform};

/// Sets a trigger; its view.
pub async fn set(platform: &Platform, name: &str, definition: Value) -> Value {
    let answer = platform.send("PUT", &format!("/v1/triggers/{name}"), &[], definition.to_string()).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()
}

/// Puts an object.
pub async fn put(platform: &Platform, key: &str, bytes: impl Into<bytes::Bytes>) {
    platform.send("PUT", &format!("/v1/objects/{key}"), &[], bytes).await.expect(201);
}

/// A trigger as it is.
pub async fn show(platform: &Platform, name: &str) -> Value {
    platform.get(&format!("/v1/triggers/{name}")).await.expect(200).json()
}

/// The trigger as it is once that holds.
pub async fn until(platform: &Platform, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let trigger = show(platform, name).await;
        if holds(&trigger) {
            return trigger;
        }
        assert!(Instant::now() < deadline, "{trigger}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The ids of its last runs, newest first.
pub fn runs(trigger: &Value) -> Vec<String> {
    let runs = trigger["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
}

/// What each run of an echo got, oldest first.
pub async fn inputs(platform: &Platform, name: &str) -> Vec<Value> {
    let mut inputs = Vec::new();
    for run in runs(&show(platform, name).await).iter().rev() {
        assert_eq!(platform.ended(run).await["state"], "succeeded");
        inputs.push(platform.get(&format!("/v1/invocations/{run}/output")).await.expect(200).json());
    }
    inputs
}

/// The keys of the objects that events tell of.
pub fn keys(inputs: &[Value]) -> Vec<&str> {
    inputs.iter().map(|event| event["data"]["key"].as_str().expect("a key")).collect()
}
