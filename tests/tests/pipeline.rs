//! The pipeline library on a real platform: every mode stays within its limit of memory and delivers every row once, also
//! while executors come and go; and it can be watched.

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
    check_watched(&gateway, &job).await;
    first.kill();
    reaches(180).await;
    let _again = executor("again");
    check(&finish(&gateway, &job).await, 40 * 300, limit);
    check_timeline(&gateway, &job).await;
}

/// Stages are counted one by one though all are one entry, and the driver says what waits between them.
async fn check_watched(gateway: &Platform, job: &str) {
    let view = gateway.get(&format!("/v1/jobs/{job}")).await.expect(200).json();
    let stages = view["progress"]["stages"].as_object().expect("stages");
    for name in ["stage#read", "stage#transform", "stage#infer"] {
        assert!(stages[name]["finished"].as_u64() > Some(0), "{name}: {view:#}");
    }
    let shown = gateway.cli(&["job", "show", job]).output().expect("the command runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    for part in ["ROWS/S", "BUFFERED", "WAITS FOR", "of 16 MB of memory"] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
}

/// The timeline is XML, with a bar for each attempt, also those that were lost with their executor.
async fn check_timeline(gateway: &Platform, job: &str) {
    let graph = gateway.get(&format!("/v1/jobs/{job}/graph")).await.expect(200).json();
    let tasks = graph["tasks"].as_array().expect("tasks");
    let runs: Vec<&Value> = tasks.iter().flat_map(|task| task["runs"].as_array().expect("runs")).collect();
    let wasted = runs.iter().filter(|run| run["committed"] != true).count();
    assert!(wasted > 0 && runs.len() > tasks.len(), "{wasted} of {} attempts were lost", runs.len());

    let drawn = gateway.cli(&["job", "show", job, "--timeline", "-"]).output().expect("the command runs");
    let svg = String::from_utf8(drawn.stdout).expect("text");
    let (mut reader, mut bars, mut red) = (quick_xml::Reader::from_str(&svg), 0, 0);
    loop {
        match reader.read_event().expect("XML") {
            quick_xml::events::Event::Start(element) => {
                let class = element.try_get_attribute("class").expect("attributes");
                let class = class.map(|class| String::from_utf8_lossy(&class.value).into_owned());
                let class = class.unwrap_or_default();
                bars += usize::from(class.starts_with("bar "));
                red += usize::from(class.starts_with("bar ") && class.ends_with(" wasted"));
            }
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!((bars, red), (runs.len(), wasted));
}
