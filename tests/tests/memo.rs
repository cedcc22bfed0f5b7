//! Memoised calls on a real platform: another job gets what an equal call made, also after a restart, and runs it again
//! where that is lost.

use std::path::{Path, PathBuf};

use fanfold_tests::platform::Platform;
use serde_json::{Value, json};

const CHECK: &str = "memoised_calls_return_the_same";

/// Runs the check in a new job: how many of its memoised tasks there were, and how many were not run.
async fn run(platform: &Platform) -> (u64, u64) {
    let request = json!({ "function": "conformance", "input": { "only": [CHECK] } }).to_string();
    let headers = [("content-type", "application/json")];
    let job = platform.send("POST", "/v1/jobs", &headers, request).await.expect(202).json();
    let id = job["id"].as_str().expect("an id");
    let view = platform.ended(id).await;
    assert_eq!(view["state"], "succeeded", "{view}");
    let report: Value = platform.get(&format!("/v1/invocations/{id}/output")).await.expect(200).json();
    assert_eq!(report["passed"], json!([CHECK]), "{report}");
    let stages = view["progress"]["stages"].as_object().expect("stages");
    let sum = |what: &str| {
        let called = stages.iter().filter(|(name, _)| !name.is_empty());
        called.map(|(_, stage)| stage[what].as_u64().expect("a count")).sum()
    };
    (sum("tasks"), sum("reused"))
}

/// Runs it until nothing of it is run any more: an entry is made after its task has committed.
async fn until_all_is_reused(platform: &Platform) {
    for _ in 0..100 {
        let (tasks, reused) = run(platform).await;
        if tasks == reused {
            return;
        }
    }
    panic!("a hundred jobs made the same calls, and they are still run");
}

fn partitions(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            partitions(&path, found);
        } else if path.parent().is_some_and(|parent| parent.file_name().is_some_and(|name| name == "part")) {
            found.push(path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_job_gets_what_an_equal_call_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("conformance").await;
    let (tasks, reused) = run(&platform).await;
    assert!(tasks > 0 && reused == 0, "{reused} of {tasks} were known before they were first run");
    until_all_is_reused(&platform).await;

    platform.kill();
    let platform = Platform::start(dir.path());
    let (tasks, reused) = run(&platform).await;
    assert_eq!(reused, tasks, "the journal knows them");

    // Of all jobs nothing is left but the one long output, which belongs to none of them.
    let mut found = Vec::new();
    partitions(&dir.path().join("job"), &mut found);
    let [copy] = found.as_slice() else { panic!("{found:?}") };
    std::fs::remove_file(copy).expect("it is there");
    platform.kill();
    let platform = Platform::start(dir.path());
    let (tasks, reused) = run(&platform).await;
    assert!(reused < tasks, "what is lost is made again");
    until_all_is_reused(&platform).await;
}
