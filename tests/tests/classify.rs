//! Pictures through a pipeline that keeps a processor and a gpu busy: from JPEG objects of known classes to labels in Arrow files.

use std::collections::BTreeMap;

use fanfold_tests::{
    jobs::{deploy, run},
    platform::Platform,
};
use serde_json::{Value, json};

const PICTURES: u64 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn pictures_get_the_right_labels_on_a_gpu() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &["--slots", "4", "--gpus", "1"]);
    deploy(&platform, &["genimages", "classify"]).await;
    let drawn = run(&platform, "genimages", json!({"output": "photos/", "count": PICTURES, "seed": 9})).await;
    assert_eq!(drawn["objects"], PICTURES);

    let words = ["job", "run", "classify", "--input", "photos/", "--output", "labels/"];
    let command = platform.cli(&words).args(["--thumbnails", "small/"]).output().expect("the command runs");
    assert!(command.status.success(), "{}", String::from_utf8_lossy(&command.stderr));
    let report: Value = serde_json::from_slice(&command.stdout).expect("a report");
    check(&report);
    let label = platform.get("/v1/objects/labels/part-00000.arrow").await.expect(200).body;
    assert!(label.starts_with(b"ARROW1"), "{label:?}");
    let thumbnail = platform.get("/v1/objects/small/0000299-triangle.jpg").await.expect(200).body;
    assert!(thumbnail.starts_with(&[0xff, 0xd8]) && thumbnail.len() < 8000, "{} bytes", thumbnail.len());

    // The gpu finds what the processor finds; a score may be rounded the other way.
    let request = json!({"input": "photos/", "output": "reference/", "on": "cpu"});
    let reference = run(&platform, "classify", request).await;
    assert_eq!(reference["labels"], report["labels"]);
    let reference = platform.get("/v1/objects/reference/part-00000.arrow").await.expect(200).body;
    let differ = label.iter().zip(&reference).filter(|(a, b)| a != b).count();
    assert!(label.len() == reference.len() && differ <= 8, "{differ} bytes differ");
}

fn check(report: &Value) {
    assert_eq!((&report["pictures"], &report["known"]), (&json!(PICTURES), &json!(PICTURES)), "{report:#}");
    let right = report["right"].as_u64().expect("a number");
    assert!(right * 100 >= PICTURES * 96, "{right} of {PICTURES} are right: {report:#}");
    let labels: BTreeMap<String, u64> = serde_json::from_value(report["labels"].clone()).expect("labels");
    assert!(labels.values().all(|count| (48..=72).contains(count)), "{labels:?}");
    let stages = report["pipeline"]["stages"].as_array().expect("stages");
    assert_eq!(stages.len(), 2, "{report:#}");
}
