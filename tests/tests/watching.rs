//! Looking at jobs while they run and after they have ended, across a restart: graph, lineage, progress, executors.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
};

use fanfold_tests::platform::Platform;
use serde_json::{Value, json};

async fn start_wordcount(platform: &Platform) -> String {
    platform.deploy("wordcount").await;
    for n in 0..20 {
        platform.send("PUT", &format!("/v1/objects/in/{n}.txt"), &[], "a b a ".repeat(500)).await.expect(201);
    }
    let request = json!({ "function": "wordcount", "input": { "prefix": "in/", "top": 2 } }).to_string();
    let json = [("content-type", "application/json")];
    let job = platform.send("POST", "/v1/jobs", &json, request).await.expect(202).json();
    job["id"].as_str().expect("an id").to_owned()
}

/// What the command prints on stdout.
fn cli(platform: &Platform, args: &[&str]) -> String {
    let output = platform.cli(args).stdin(Stdio::null()).output().expect("fanfold runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_job_still_tells_how_it_was_made_after_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let id = start_wordcount(&platform).await;
    platform.ended(&id).await;
    let graph = platform.get(&format!("/v1/jobs/{id}/graph")).await.expect(200).json();
    let tasks = graph["tasks"].as_array().expect("tasks");
    let last = tasks.iter().find(|task| task["inputs"].as_array().is_some_and(|inputs| !inputs.is_empty()));
    let last = last.expect("a task that takes what another one made");
    let (input, partition) =
        (last["inputs"][0].clone(), format!("{}.0", last["id"].as_str().expect("an id")));
    assert!(last["outputs"][0]["crc32c"].is_u64() && last["executor"].is_u64(), "{last}");
    let path = format!("/v1/partitions/{partition}/lineage");
    let lineage = platform.get(&path).await.expect(200).json();
    assert_eq!(lineage["inputs"][0]["partition"], input);

    platform.kill();
    let platform = Platform::start(dir.path());
    assert_eq!(platform.get(&format!("/v1/jobs/{id}/graph")).await.expect(200).json(), graph);
    assert_eq!(platform.get(&format!("{path}?job={id}")).await.expect(200).json(), lineage);
    platform.get(&path).await.expect_problem(404, "not-found", "partition", "?job=");

    let text = cli(&platform, &["part", "lineage", &partition, "--job", &id]);
    assert!(text.lines().count() >= 2 && text.contains("crc32c") && text.contains(&partition), "{text}");
    let dot = cli(&platform, &["job", "graph", &id, "--format", "dot"]);
    assert!(dot.starts_with("digraph") && dot.contains("->") && dot.ends_with("}\n"), "{dot}");
    let table = cli(&platform, &["job", "graph", &id]);
    assert_eq!(table.lines().count(), tasks.len() + 1, "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_watched_by_stage_and_executors_say_what_they_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let id = start_wordcount(&platform).await;
    let lines = cli(&platform, &["job", "watch", &id, "--json"]);
    let views: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = views.last().expect("a view");
    assert_eq!(last["state"], "succeeded");
    let stages = last["progress"]["stages"].as_object().expect("stages");
    let sum = |what: &str| stages.values().map(|stage| stage[what].as_u64().expect("a count")).sum::<u64>();
    assert_eq!(Some(sum("tasks")), last["progress"]["tasks"].as_u64());
    assert_eq!((sum("finished"), sum("running"), sum("waiting")), (sum("tasks"), 0, 0), "{last}");
    assert!(sum("bytes_read") > 0 && stages.values().all(|stage| stage["started_at_ms"].is_u64()), "{last}");
    let text = cli(&platform, &["job", "watch", &id]);
    assert!(stages.keys().filter(|name| !name.is_empty()).all(|name| text.contains(name.as_str())), "{text}");

    let view: Value = serde_json::from_str(&cli(&platform, &["top", "--once", "--json"])).expect("JSON");
    assert_eq!(view["executors"].as_array().map(Vec::len), Some(1), "{view}");
    assert_eq!(view["executors"][0]["cpu_millis_used"], 0);
    let screen = cli(&platform, &["top", "--once"]);
    assert!(screen.starts_with("1 executor: 0 of "), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stands_still_says_what_it_waits_for() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &["--memory", "256MiB"]);
    let manifest = "name = \"groupby\"\ncomponent = \"c.wasm\"\n[resources]\nmemory = \"32MiB\"\n";
    platform.deploy_as("groupby", manifest).await;
    let words = ["job", "run", "groupby", "--data", r#"{"input": "rows/", "key": "k", "value": "v"}"#];
    let mut run =
        platform.cli(&words).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("fanfold runs");
    let mut lines = BufReader::new(run.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    let id = lines.next().and_then(|line| Some(line.strip_prefix("job ")?.to_owned())).expect("the job's id");
    let line = lines.find(|line| line.starts_with("waiting")).expect("a line, while nothing of it runs");
    assert!(line.contains("needs 256.0 MiB of memory, the largest executor offers"), "{line}");
    platform.post(&format!("/v1/invocations/{id}/cancel"), "").await.expect(200);
    assert!(!run.wait().expect("a child of ours").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_show_while_an_attempt_runs_and_outlive_its_cancelling() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let manifest = "name = \"misbehave\"\ncomponent = \"c.wasm\"\ntimeout = \"1h\"\n";
    platform.deploy_as("misbehave", manifest).await;
    let id = platform.invoke_async("misbehave", r#"{"do":"mumble"}"#).await;
    let mut follow = platform.cli(&["logs", "-f", &id]).stdout(Stdio::piped()).spawn().expect("fanfold runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line, while it sleeps");
    assert!(line.contains("good night"), "{line}");
    platform.post(&format!("/v1/invocations/{id}/cancel"), "").await.expect(200);
    assert_eq!(platform.ended(&id).await["state"], "cancelled");
    lines.read_to_string(&mut line).expect("the rest");
    assert!(follow.wait().expect("a child of ours").success());
    let stored = platform.get(&format!("/v1/invocations/{id}/logs")).await.expect(200).text();
    for text in ["good night", "sleeping"] {
        assert_eq!((line.matches(text).count(), stored.matches(text).count()), (1, 1), "{line} {stored}");
    }
}
