//! The bill of a job: what it counts is what the store was asked.

use fanfold_tests::platform::Platform;
use serde_json::{Value, json};

/// Requests of a kind since the platform's start.
async fn counted(platform: &Platform, kind: &str) -> f64 {
    let metrics = platform.get("/metrics").await.expect(200).text();
    let name = format!("fanfold_store_requests_total{{kind=\"{kind}\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// Runs the checks of the host interface that read and write objects and large partitions; its id.
async fn job(platform: &Platform) -> String {
    let only =
        ["objects_are_read_and_written", "objects_are_written_piece_by_piece", "large_values_are_partitions"];
    let request = json!({ "function": "conformance", "input": { "only": only } }).to_string();
    let id =
        platform.post("/v1/jobs", request).await.expect(202).json()["id"].as_str().expect("an id").to_owned();
    let view = platform.ended(&id).await;
    assert_eq!((&view["state"], &view["progress"]["retries"]), (&json!("succeeded"), &json!(0)), "{view}");
    id
}

/// In a quiet run all requests are the job's but the writes of the journal, of the job's log and of its graph.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_billed_for_the_requests_that_were_made_for_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("conformance").await;
    // Its component is loaded and its version read by the first job.
    job(&platform).await;
    let kinds = ["get", "head", "part", "list", "put"];
    let mut before = Vec::new();
    for kind in kinds {
        before.push(counted(&platform, kind).await);
    }
    let id = job(&platform).await;
    let bill = platform.get(&format!("/v1/jobs/{id}/cost")).await.expect(200).json();
    let of = |bill: &Value, kind: &str| bill["requests"][kind]["quantity"].as_f64().expect("a number");
    for (kind, before) in kinds.into_iter().zip(before) {
        let made = counted(&platform, kind).await - before;
        match kind {
            "put" => assert!((4.0..=made).contains(&of(&bill, kind)), "{made} puts: {bill}"),
            _ => assert_eq!(of(&bill, kind), made, "{kind}: {bill}"),
        }
    }
    // One object has 18 MB: a file is one request all the same.
    assert!(of(&bill, "part") == 0.0 && of(&bill, "list") == 1.0, "{bill}");
    assert!(bill["gb_out"]["quantity"].as_f64().expect("a number") > 0.018, "{bill}");
    let amounts = ["cpu_seconds", "gb_hours", "gb_in", "gb_out", "stored_gb_months"].map(|line| &bill[line]);
    let lines = amounts.into_iter().chain([&bill["requests"]["all"]]);
    let sum: f64 = lines.map(|line| line["amount"].as_f64().expect("a number")).sum();
    assert!(sum > 0.0 && (sum - bill["total"].as_f64().expect("a number")).abs() < 1e-12, "{bill}");
    assert_eq!(bill["complete"], true);

    // It is the same after a restart.
    assert!(platform.terminate().success());
    let platform = Platform::start(dir.path());
    let again = platform.get(&format!("/v1/jobs/{id}/cost")).await.expect(200).json();
    assert_eq!(again["requests"], bill["requests"]);
    assert_eq!(again["gb_hours"], bill["gb_hours"]);
}
