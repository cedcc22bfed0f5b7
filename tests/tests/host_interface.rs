//! The host's side of `fanfold:function`, as a component sees it.

use fanfold_tests::platform::Platform;
use serde_json::{Value, json};

/// Every host call, from inside (`functions/conformance`): synchronously, and as a recorded job.
#[tokio::test(flavor = "multi_thread")]
async fn the_platform_passes_the_conformance_checks() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("conformance").await;
    let report = platform.post("/function/conformance", "").await.expect(200).json();
    passed(&report);

    let request = json!({ "function": "conformance", "input": {} }).to_string();
    let job = platform.post("/v1/jobs", request).await.expect(202).json();
    let id = job["id"].as_str().expect("an id");
    let view = platform.ended(id).await;
    assert_eq!(view["state"], "succeeded", "{view}");
    passed(&platform.get(&format!("/v1/invocations/{id}/output")).await.expect(200).json());
}

fn passed(report: &Value) {
    assert_eq!(report["failed"], json!([]), "{report}");
    // As many as there were when this was written: a report of nothing is no pass.
    assert!(report["passed"].as_array().is_some_and(|names| names.len() >= 27), "{report}");
}

/// Whether a function calls others is read off its imports, and decides which lane its calls take: one that calls none
/// must not import them because its SDK could.
#[tokio::test(flavor = "multi_thread")]
async fn only_drivers_import_tasks() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    for (name, calls_others) in [("echo", false), ("thumbnail", false), ("wordcount", true)] {
        platform.deploy(name).await;
        let described = platform.get(&format!("/v1/functions/{name}")).await.expect(200).json();
        let imports = described["versions"][0]["imports"].as_array().expect("a list").clone();
        let tasks = |import: &Value| import.as_str().is_some_and(|i| i.starts_with("fanfold:function/tasks"));
        assert_eq!(imports.iter().any(tasks), calls_others, "{name}: {imports:?}");
    }
}
