//! Functions on a gpu, through a whole platform: on hardware where there is some, else on the adapter in software.

use std::{fs::File, process::Command};

use fanfold_tests::{
    cluster::{PATIENCE, until},
    jobs::{begin, deploy, finish},
    platform::{Answer, Platform, binary},
};
use serde_json::{Value, json};

const GPU: [&str; 4] = ["--gpus", "2", "--gpu-memory", "64MiB"];

fn misbehave(gpu: u32, software: &str) -> String {
    format!(
        "name = \"misbehave\"\ntimeout = \"60s\"\n[resources]\ngpu = {gpu}\n[retry]\nattempts = 1\n\
         [gpu]\nsoftware = \"{software}\"\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_product_on_the_gpu_equals_the_one_on_the_processor() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &GPU);
    platform.deploy("matmul").await;
    // Sizes that fill workgroups, and sizes that do not.
    for (n, seed) in [(16, 1), (128, 2), (400, 3)] {
        let report = product(&platform, n, seed, "f32").await.expect(200).json();
        // Sums of n products below 1 in 32 bits.
        check_product(&report, f64::from(n) * 1e-6);
    }
    let half = product(&platform, 400, 3, "f16").await;
    if half.status == 200 {
        // Elements are below 64, where numbers of 16 bits are a sixteenth apart at most.
        check_product(&half.json(), 1.0 / 16.0);
    } else {
        half.expect_problem(409, "conflict", "error-returned", "has no f16");
    }
    let bad = platform.post("/function/matmul", json!({"n": 17}).to_string()).await;
    bad.expect_problem(400, "invalid", "error-returned", "multiple of 16");
    assert!(platform.terminate().success());
}

async fn product(platform: &Platform, n: u32, seed: u32, precision: &str) -> Answer {
    let body = json!({"n": n, "seed": seed, "precision": precision}).to_string();
    platform.post("/function/matmul", body).await
}

fn check_product(report: &Value, tolerance: f64) {
    let number = |name: &str| report[name].as_f64().expect("a number");
    assert!(number("error") <= number("tolerance") && number("tolerance") <= tolerance * 1.0001, "{report}");
    // An error of 0 would be one of numbers that are all 0.
    assert!(number("sum") != 0.0 && number("error") > 0.0, "{report}");
}

/// The second task of a job that wants the same weights on the device does not read them.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_on_the_gpu_is_read_once_a_job() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &GPU);
    deploy(&platform, &["gpu-speed"]).await;
    let bytes = 4 << 20;
    let request = json!({
        "n": 16, "invocations": 64, "rounds": 1, "bytes": bytes, "submissions": 1, "repeats": 1,
    });
    for _ in 0..2 {
        let job = begin(&platform, "gpu-speed", &request).await;
        finish(&platform, &job).await;
        let view = platform.get(&format!("/v1/jobs/{job}")).await.expect(200).json();
        let stage = &view["progress"]["stages"]["kept"];
        assert_eq!((&stage["finished"], &stage["bytes_read"]), (&json!(2), &json!(bytes)), "{view:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_guest_does_on_a_gpu_is_its_own_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut platform = Platform::start_with(dir.path(), &GPU);
    platform.deploy("matmul").await;
    platform.deploy_as("misbehave", &misbehave(1, "allow")).await;
    let body = |act: &str| json!({"do": act}).to_string();
    let (hung, product) = futures::join!(
        platform.post("/function/misbehave", body("gpu-loop")),
        platform.post("/function/matmul", json!({"n": 64}).to_string())
    );
    assert!(hung.status >= 400 && hung.text().contains("submission 1 took over 10 s"), "{}", hung.text());
    product.expect(200);
    for (act, part) in [
        ("gpu-allocate", "device memory"),
        ("gpu-shader", "shader `harm`"),
        ("gpu-overrun", "do not fit a buffer of 64 bytes"),
        ("gpu-encoders", "holds 16 command encoders"),
    ] {
        let answer = platform.post("/function/misbehave", body(act)).await;
        assert!(answer.status >= 400 && answer.text().contains(part), "{act}: {}", answer.text());
    }
    platform.post("/function/matmul", json!({"n": 64}).to_string()).await.expect(200);
    assert!(platform.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_is_had_only_by_who_asked_for_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &GPU);
    let body = json!({"do": "gpu-adapter"}).to_string();
    platform.deploy_as("misbehave", &misbehave(0, "allow")).await;
    let none = platform.post("/function/misbehave", body.clone()).await;
    assert!(none.text().contains("holds no gpu"), "{}", none.text());
    platform.deploy_as("misbehave", &misbehave(1, "allow")).await;
    let adapter = platform.post("/function/misbehave", body.clone()).await.expect(200).text();
    eprintln!("adapter: {adapter}");
    let offered = platform.get("/v1/executors").await.expect(200).json();
    let name = offered["executors"][0]["adapter"].as_str().expect("an adapter");
    assert!(adapter.ends_with(name), "{adapter}, offered: {name}");
    platform.deploy_as("misbehave", &misbehave(1, "refuse")).await;
    let strict = platform.post("/function/misbehave", body.clone()).await;
    if adapter.contains("software") {
        assert!(strict.text().contains("gpu.software"), "{}", strict.text());
    } else {
        assert_eq!(strict.expect(200).text(), adapter);
    }
}

/// Not even one whose device is busy for ever outlives an executor that could say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_executor_leaves_no_worker_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &GPU);
    platform.deploy_as("misbehave", &misbehave(1, "allow")).await;
    let id = platform.invoke_async("misbehave", json!({"do": "gpu-loop"}).to_string()).await;
    let logs = format!("/v1/invocations/{id}/logs");
    let busy = until(PATIENCE, async || platform.get(&logs).await.text().contains("the gpu is busy"));
    assert!(busy.await, "no kernel runs after {PATIENCE:?}");
    let workers = workers_of(platform.pid());
    assert!(!workers.is_empty(), "no worker computes");
    platform.kill();
    let gone = until(PATIENCE, async || !workers.iter().any(|worker| parent_of(*worker).is_some()));
    assert!(gone.await, "{workers:?} still run after {PATIENCE:?}");
}

/// A stopped attempt ends its gpu process: it does not close its session, which would wait for a kernel that may never end.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_attempt_leaves_its_gpu_at_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = dir.path().join("log");
    let mut command = Command::new(binary());
    // One slot: the process that looked for an adapter makes room.
    let args = ["up", "--json", "--listen", "127.0.0.1:0", "--gpus", "1", "--dir"];
    command.args(args).arg(dir.path().join("data"));
    command.stderr(File::create(&log).expect("a file"));
    let platform = Platform::spawn(command, dir.path()).expect("it starts");
    platform.deploy_as("misbehave", &misbehave(1, "allow")).await;
    let id = platform.invoke_async("misbehave", json!({"do": "gpu-loop"}).to_string()).await;
    let logs = format!("/v1/invocations/{id}/logs");
    let busy = until(PATIENCE, async || platform.get(&logs).await.text().contains("the gpu is busy"));
    assert!(busy.await, "no kernel runs after {PATIENCE:?}");
    platform.post(&format!("/v1/invocations/{id}/cancel"), "").await.expect(200);
    let gone = until(PATIENCE, async || workers_of(platform.pid()).is_empty());
    assert!(gone.await, "it still computes after {PATIENCE:?}");
    assert!(platform.terminate().success());
    let log = std::fs::read_to_string(&log).expect("a log");
    assert!(!log.contains("a gpu process ended"), "its time had to run out first: {log}");
}

/// The processes that compute for this one.
fn workers_of(executor: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_worker = |process: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        command.contains("gpu-worker") && parent_of(*process) == Some(executor)
    };
    processes.filter(is_worker).collect()
}

/// The parent of a process that has not ended; who adopts one may take its time to bury it.
fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if fields.next()? == "Z" { None } else { fields.next()?.parse().ok() }
}

/// Slots are counted and nothing else, until somebody calls.
#[tokio::test(flavor = "multi_thread")]
async fn slots_are_counted_by_the_scheduler() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy_as("misbehave", &misbehave(1, "allow")).await;
    let id = platform.invoke_async("misbehave", json!({"do": "nothing"}).to_string()).await;
    let waiting = platform.get(&format!("/v1/jobs/{id}")).await.expect(200).text();
    assert!(waiting.contains("needs 1 gpu, the largest executor offers 0"), "{waiting}");
    assert!(platform.terminate().success());
    let platform = Platform::start_with(dir.path(), &["--gpus", "1"]);
    assert_eq!(platform.ended(&id).await["state"], "succeeded");
}
