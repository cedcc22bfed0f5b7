//! Counting words as users do: text as objects, a job over it, and the right answer.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::platform::Platform;

/// Puts text in as objects; the counts of its words.
pub async fn put_text(gateway: &Platform, objects: usize) -> BTreeMap<String, u64> {
    let mut rng = StdRng::seed_from_u64(17);
    let mut counts = BTreeMap::new();
    for object in 0..objects {
        let mut text = String::new();
        for _ in 0..20_000 {
            // Frequent and rare words, as in real text.
            let most = rng.random_range(1..3000);
            let word = format!("w{}", rng.random_range(0..most));
            text.push_str(&word);
            text.push(' ');
            *counts.entry(word).or_default() += 1;
        }
        gateway.send("PUT", &format!("/v1/objects/text/{object}"), &[], text).await.expect(201);
    }
    counts
}

/// The last view of a job. While nobody can answer, because its gateway is gone, it asks again.
pub async fn ended(gateway: &Platform, job: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = gateway.try_send("GET", &format!("/v1/invocations/{job}?wait=1s"), &[], "").await;
        let seen = match answer {
            Ok(answer) if answer.status != 503 => {
                let view = answer.expect(200).json();
                if matches!(view["state"].as_str(), Some("succeeded" | "failed" | "cancelled")) {
                    return view;
                }
                format!("{view:#}")
            }
            Ok(answer) => answer.text(),
            Err(error) => error.to_string(),
        };
        assert!(Instant::now() < deadline, "{seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Begins to count the words of that text; the job.
pub async fn begin(gateway: &Platform) -> String {
    let input = json!({ "prefix": "text/", "split_bytes": 100_000, "reducers": 8, "top": 50 }).to_string();
    let body =
        json!({ "function": "wordcount", "input": serde_json::from_str::<Value>(&input).expect("JSON") });
    let answer = gateway
        .send("POST", "/v1/jobs", &[("content-type", "application/json")], body.to_string())
        .await
        .expect(202);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// Waits for the job, and compares what it counted.
pub async fn check(gateway: &Platform, job: &str, counts: &BTreeMap<String, u64>) {
    let view = ended(gateway, job).await;
    assert_eq!(view["state"], "succeeded", "{view:#}");
    let report = gateway.get(&format!("/v1/invocations/{job}/output")).await.expect(200).json();
    assert_eq!(report["words"], counts.values().sum::<u64>());
    assert_eq!(report["distinct"], counts.len());
    for row in report["top"].as_array().expect("rows") {
        assert_eq!(counts[row["word"].as_str().expect("a word")], row["count"].as_u64().expect("a count"));
    }
}
