//! Jobs, from their submission to their report.

use serde_json::{Value, json};

use crate::platform::Platform;

/// Deploys functions of `functions/`.
///
/// # Panics
/// If one is refused.
pub async fn deploy(platform: &Platform, functions: &[&str]) {
    for function in functions {
        platform.deploy(function).await.expect(201);
    }
}

/// Submits a job; its id.
///
/// # Panics
/// If it is refused.
pub async fn begin(platform: &Platform, function: &str, input: &Value) -> String {
    let body = json!({ "function": function, "input": input }).to_string();
    let json = [("content-type", "application/json")];
    let answer = platform.send("POST", "/v1/jobs", &json, body).await.expect(202).json();
    answer["id"].as_str().expect("an id").to_owned()
}

/// Waits for a job; its output.
///
/// # Panics
/// If it does not succeed.
pub async fn finish(platform: &Platform, job: &str) -> Value {
    let view = platform.ended(job).await;
    assert_eq!(view["state"], "succeeded", "{view:#}");
    platform.get(&format!("/v1/invocations/{job}/output")).await.expect(200).json()
}

/// Runs a job to its end; its output.
///
/// # Panics
/// If it does not succeed.
pub async fn run(platform: &Platform, function: &str, input: Value) -> Value {
    let job = begin(platform, function, &input).await;
    finish(platform, &job).await
}

/// How many tasks of a job have finished.
///
/// # Panics
/// If the job has ended: it was too short for what is tested.
pub async fn finished_tasks(platform: &Platform, job: &str) -> u64 {
    let view = platform.get(&format!("/v1/jobs/{job}")).await.expect(200).json();
    assert!(view["state"] == "queued" || view["state"] == "running", "too short a job: {view:#}");
    view["progress"]["finished"].as_u64().unwrap_or(0)
}
