//! The pipeline library on a real platform: every mode stays within its limit of memory and delivers every row once, also
//! while executors come and go.

use fanfold_tests::{
    cluster::{Cluster, PATIENCE, joined, until},
    jobs::{begin, deploy, finish, finished_tasks, run},
    platform::Platform,
};
use serde_json::{Value, json};

const FUNCTION: &str = "pipeline-memory";

fn check(measured: &Value, rows: u64, limit_bytes: u64) {
    assert_eq!(measured["complete"], true, "{measured:#}");
    assert_eq!(measured["rows"], rows, "{measured:#}");
    let peak = measured["report"]["peak_bytes"].as_u64().expect("a peak");
    assert!(peak <= limit_bytes, "{peak} bytes: {measured:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_delivers_every_row_once_within_its_limit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &["--slots", "8", "--resource", "accelerator=4"]);
    deploy(&platform, &[FUNCTION]).await;
    for mode in ["full", "staged", "static", "no-repartition", "no-adaptive"] {
        let limit = 12_000_000;
        let request = json!({
            "mode": mode, "limit_bytes": limit, "loads": 12, "rows": 300, "row_bytes": 1_000,
            "load_ms": 40, "transform_ms": 5, "infer_ms": 5,
        });
        let measured = run(&platform, FUNCTION, request).await;
        check(&measured, 12 * 300, limit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn executors_may_go_and_come_during_a_pipeline() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let executor = |name: &str| cluster.executor(name, &["--slots", "4", "--resource", "accelerator=2"]);
    let (first, _second) = (executor("first"), executor("second"));
    joined(&gateway, 2).await;
    deploy(&gateway, &[FUNCTION]).await;
    let limit = 16_000_000;
    let request = json!({
        "limit_bytes": limit, "loads": 40, "rows": 300, "row_bytes": 4_000,
        "load_ms": 200, "transform_ms": 20, "infer_ms": 20,
    });
    let job = begin(&gateway, FUNCTION, &request).await;
    // Of about 280.
    let reaches = async |tasks: u64| {
        let reached = until(PATIENCE, async || finished_tasks(&gateway, &job).await >= tasks).await;
        assert!(reached, "it does not go on to {tasks} tasks");
    };
    reaches(90).await;
    first.kill();
    reaches(180).await;
    let _again = executor("again");
    check(&finish(&gateway, &job).await, 40 * 300, limit);
}
