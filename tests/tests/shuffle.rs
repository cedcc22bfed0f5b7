//! The shuffle library on a real cluster: every strategy gives the same valid output, also while executors die and the store
//! fails; bad input gives a clear error or a right answer.

use std::time::Duration;

use fanfold_tests::{
    cluster::{Cluster, PATIENCE, joined, until},
    jobs::{begin, deploy, finish, finished_tasks, run},
    platform::Platform,
};
use serde_json::{Value, json};

/// Checks a sorted output against what was generated.
async fn validate(gateway: &Platform, output: &str, made: &Value) -> Value {
    let input = json!({ "input": output, "checksum": made["checksum"], "records": made["records"] });
    let found = run(gateway, "valsort", input).await;
    assert_eq!(found["valid"], true, "{output}: {found:#}, of {made}");
    found
}

/// Every output object's key after the prefix, size and content hash.
async fn contents(gateway: &Platform, prefix: &str) -> Vec<(String, u64, [u8; 32])> {
    use sha2::Digest as _;
    let listed = gateway.get(&format!("/v1/objects?prefix={prefix}")).await.expect(200).json();
    let mut all = Vec::new();
    for object in listed["items"].as_array().expect("objects") {
        let key = object["key"].as_str().expect("a key");
        let body = gateway.get(&format!("/v1/objects/{key}")).await.expect(200).body;
        let name = key.strip_prefix(prefix).expect("the prefix").to_owned();
        all.push((name, body.len() as u64, sha2::Sha256::digest(&body).into()));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_strategy_gives_the_same_valid_output() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let _executors: Vec<Platform> = (1..=4).map(|n| cluster.executor(&format!("e{n}"), &[])).collect();
    joined(&gateway, 4).await;
    deploy(&gateway, &["gensort", "sort", "valsort"]).await;
    let made = run(&gateway, "gensort", json!({ "prefix": "in/", "records": 100_000, "objects": 7 })).await;
    for method in ["deal", "runs"] {
        let mut first = None;
        for strategy in ["simple", "merge", "push", "push_star", "auto"] {
            let output = format!("{method}/{strategy}/");
            let sort = json!({
                "input": "in/", "output": output, "strategy": strategy, "method": method,
                "reducers": 8, "split_bytes": 500_000, "slots": 4,
            });
            let report = run(&gateway, "sort", sort).await;
            assert_eq!(report["records"], 100_000, "{report:#}");
            validate(&gateway, &output, &made).await;
            let contents = contents(&gateway, &output).await;
            assert_eq!(contents.len(), 8, "{strategy}: {contents:?}");
            assert_eq!(*first.get_or_insert_with(|| contents.clone()), contents, "{method} {strategy}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn executors_may_die_and_the_store_may_fail_during_a_sort() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let mut executors: Vec<Platform> = (1..=4).map(|n| cluster.executor(&format!("e{n}"), &[])).collect();
    joined(&gateway, 4).await;
    deploy(&gateway, &["gensort", "sort", "valsort"]).await;
    let made = run(&gateway, "gensort", json!({ "prefix": "in/", "records": 400_000, "objects": 8 })).await;
    cluster.s3.set_faults(&["503:0.01"]).await;
    for strategy in ["simple", "merge", "push", "push_star"] {
        let output = format!("{strategy}/");
        let sort = json!({
            "input": "in/", "output": output, "strategy": strategy, "reducers": 8, "split_bytes": 500_000, "slots": 4,
        });
        let job = begin(&gateway, "sort", &sort).await;
        let half = async || finished_tasks(&gateway, &job).await >= 40;
        assert!(until(PATIENCE, half).await, "it does not begin");
        executors.remove(0).kill();
        let report = finish(&gateway, &job).await;
        assert_eq!(report["records"], 400_000, "{report:#}");
        validate(&gateway, &output, &made).await;
        executors.push(cluster.executor(&format!("after-{strategy}"), &[]));
        joined(&gateway, 4).await;
    }
}

/// 80 maps of half a megabyte, eight of which fit into the memory that [`SPILLING`] leaves them.
async fn begin_spilling_sort(platform: &Platform) -> (String, Value) {
    deploy(platform, &["gensort", "sort", "valsort"]).await;
    let made = run(platform, "gensort", json!({ "prefix": "in/", "records": 400_000, "objects": 8 })).await;
    let sort = json!({
        "input": "in/", "output": "out/", "strategy": "simple", "reducers": 8, "split_bytes": 500_000, "slots": 1,
    });
    let job = begin(platform, "sort", &sort).await;
    let half = async || finished_tasks(platform, &job).await >= 50;
    assert!(until(PATIENCE, half).await, "it does not begin");
    (job, made)
}

const SPILLING: [&str; 4] = ["--cache-memory", "4MiB", "--memory", "1GiB"];

/// Ends the sort: how many of its tasks are so.
async fn end_spilling_sort(
    platform: &Platform,
    job: &str,
    made: &Value,
    is_so: impl Fn(&&Value) -> bool,
) -> usize {
    let report = finish(platform, job).await;
    assert_eq!(report["records"], 400_000, "{report:#}");
    validate(platform, "out/", made).await;
    let graph = platform.get(&format!("/v1/jobs/{job}/graph")).await.expect(200).json();
    let tasks = graph["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 90, "a survey, 80 maps, 8 reducers and their driver");
    tasks.iter().filter(is_so).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_is_killed_and_started_again_has_what_it_had_spilled() {
    let (cluster, spill) = (Cluster::start(), tempfile::tempdir().expect("a temporary directory"));
    let gateway = cluster.gateway("g0");
    // Alone, so that what it has is all there is.
    let args = [&SPILLING[..2], &["--spill", spill.path().to_str().expect("text")]].concat();
    let first = cluster.executor("e", &args);
    joined(&gateway, 1).await;
    let (job, made) = begin_spilling_sort(&gateway).await;
    let executor = first.ready()["executor"].clone();
    first.kill();
    let again = cluster.executor("e", &args);
    assert_eq!(again.ready()["executor"], executor, "it has the id under which its partitions are known");
    let again = |task: &&Value| task["attempts"].as_u64().expect("a number") > 1;
    let again = end_spilling_sort(&gateway, &job, &made, again).await;
    // The driver, what ran, and what was in memory; not what was on disk.
    assert!((1..=20).contains(&again), "{again} tasks ran again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_that_is_killed_and_started_again_has_what_it_had_spilled() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let first = Platform::start_with(dir.path(), &SPILLING);
    let (job, made) = begin_spilling_sort(&first).await;
    first.kill();
    let again = Platform::start_with(dir.path(), &SPILLING);
    // Of a task that has not run since the start, where it ran is not known.
    let since = end_spilling_sort(&again, &job, &made, |task| task["executor"].is_u64()).await;
    assert!((9..=60).contains(&since), "{since} tasks ran in the second process, and 50 in the first");
}

#[tokio::test(flavor = "multi_thread")]
async fn skewed_keys_make_reducers_of_like_size() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    deploy(&platform, &["gensort", "sort", "valsort"]).await;
    let skewed = json!({ "prefix": "in/", "records": 300_000, "objects": 4, "skew": true });
    let made = run(&platform, "gensort", skewed).await;
    let sort = json!({ "input": "in/", "output": "out/", "reducers": 12, "split_bytes": 1_000_000 });
    run(&platform, "sort", sort).await;
    validate(&platform, "out/", &made).await;
    let mut bytes: Vec<u64> = contents(&platform, "out/").await.iter().map(|(_, bytes, _)| *bytes).collect();
    bytes.sort_unstable();
    let ratio = bytes[11] as f64 / bytes[5] as f64;
    println!("largest / median reducer: {ratio:.2}");
    assert!(ratio <= 1.5, "{bytes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sorted_is_refused_and_the_unusual_is_sorted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    deploy(&platform, &["gensort", "sort", "valsort"]).await;
    let put = async |key: &str, body: Vec<u8>| {
        platform.send("PUT", &format!("/v1/objects/{key}"), &[], body).await.expect(201);
    };
    put("cut/a", vec![b'a'; 250]).await;
    put("empty/a", Vec::new()).await;
    put("one/a", vec![b'a'; 100]).await;
    put("same/a", [b"0123456789".as_slice(), &[b'x'; 90]].concat().repeat(5000)).await;
    put("full/a", vec![b'a'; 100]).await;
    let refused = [
        (json!({ "input": "cut/", "output": "out/" }), "50 more than a whole number of 100-byte records"),
        (json!({ "input": "none/", "output": "out/" }), "no objects under `none/`"),
        (json!({ "input": "one/", "output": "one/sorted/" }), "overlap"),
        (json!({ "input": "one/", "output": "full/" }), "remove what is under `full/`"),
        (json!({ "input": "one/", "output": "" }), "`output` is empty"),
        (json!({ "input": "one/", "output": "out/", "reducers": 0 }), "0 reducers"),
        (json!({ "input": "one/", "output": "out/", "split_bytes": 99 }), "a record has 100"),
        (json!({ "input": "one/", "output": "out/", "wrong": 1 }), "unknown field `wrong`"),
    ];
    for (input, said) in refused {
        let view = platform.ended(&begin(&platform, "sort", &input).await).await;
        assert_eq!(view["state"], "failed", "{view:#}");
        assert!(view["error"]["message"].as_str().is_some_and(|message| message.contains(said)), "{view:#}");
    }
    // No record, one record and more reducers than keys, one key only.
    for (input, records, reducers) in [("empty/", 0, 3), ("one/", 1, 5), ("same/", 5000, 4)] {
        let output = format!("sorted-{input}");
        let sort = json!({ "input": input, "output": output, "reducers": reducers, "split_bytes": 100_000 });
        let report = run(&platform, "sort", sort).await;
        assert_eq!(report["records"], records, "{report:#}");
        let found = run(&platform, "valsort", json!({ "input": output, "records": records })).await;
        assert_eq!(
            (found["valid"].as_bool(), found["objects"].as_u64()),
            (Some(true), Some(reducers)),
            "{found:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changes_during_a_sort_is_noticed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &["--slots", "1"]);
    deploy(&platform, &["gensort", "sort"]).await;
    run(&platform, "gensort", json!({ "prefix": "in/", "records": 500_000, "objects": 1 })).await;
    let sort = json!({ "input": "in/", "output": "out/", "split_bytes": 50_000 });
    let job = begin(&platform, "sort", &sort).await;
    let begun = async || {
        let view = platform.get(&format!("/v1/jobs/{job}")).await.expect(200).json();
        view["progress"]["finished"].as_u64().is_some_and(|finished| finished >= 3)
    };
    assert!(until(Duration::from_secs(10), begun).await, "it does not begin");
    platform.send("PUT", "/v1/objects/in/part-00000", &[], vec![b'z'; 50_000_000]).await.expect(201);
    let view = platform.ended(&job).await;
    assert_eq!(view["state"], "failed", "{view:#}");
    assert_eq!(view["error"]["kind"], "conflict", "{view:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_do_not_depend_on_how_the_data_lies() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    deploy(&platform, &["groupby"]).await;
    let call = async |entry: &str, input: Value| {
        let body = json!({ "function": "groupby", "entry": entry, "input": input }).to_string();
        let json = [("content-type", "application/json")];
        let answer = platform.send("POST", "/v1/jobs", &json, body).await.expect(202).json();
        finish(&platform, answer["id"].as_str().expect("an id")).await
    };
    for (prefix, objects) in [("few/", 2), ("many/", 9)] {
        let data = json!({ "prefix": prefix, "rows": 300_000, "distinct": 5000, "objects": objects });
        call("generate", data).await;
    }
    let group = |input: &str, reducers: u32| {
        json!({ "input": input, "key": "key", "value": "value", "reducers": reducers,
            "aggregates": ["sum", "count", "min", "max", "mean"] })
    };
    let one = call("", group("few/", 1)).await;
    assert_eq!((one["rows"].as_u64(), one["groups"].as_u64()), (Some(300_000), Some(5000)), "{one:#}");
    let split = json!({ "split_bytes": 500_000 });
    let mut many = group("few/", 5);
    many["split_bytes"] = split["split_bytes"].clone();
    let many = call("", many).await;
    assert!(many["maps"].as_u64() > one["maps"].as_u64(), "{many:#}");
    assert_eq!((&one["checksum"], &one["top"]), (&many["checksum"], &many["top"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_shuffle_trains_better_and_partial_results_get_better() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    deploy(&platform, &["sgd", "distinct-sketch"]).await;
    let trained = run(&platform, "sgd", json!({ "samples": 20_000 })).await;
    let last = |which: &str| {
        trained[which].as_array().and_then(|epochs| epochs.last()?.as_f64()).expect("an accuracy")
    };
    println!(
        "accuracy {} with a full shuffle before each epoch, {} without",
        last("shuffled"),
        last("unshuffled")
    );
    assert!(last("shuffled") > last("unshuffled") + 0.05, "{trained:#}");

    for n in 0..40 {
        let words: String = (0..2000).map(|k| format!("w{} ", (k * k + n * 7) % 900)).collect();
        platform.send("PUT", &format!("/v1/objects/text/{n}"), &[], words).await.expect(201);
    }
    let found = run(&platform, "distinct-sketch", json!({ "prefix": "text/", "split_bytes": 20_000 })).await;
    let rounds = found["rounds"].as_array().expect("rounds");
    let error = |round: &Value| round["distinct_missing"].as_f64().expect("an error");
    assert!(rounds.len() >= 3, "{found:#}");
    assert!(error(&rounds[0]) > error(&rounds[rounds.len() - 1]), "{found:#}");
}
