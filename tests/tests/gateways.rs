//! Several gateways are one platform: any of them answers for everything, and another goes on when one dies.

use std::time::{Duration, Instant};

use fanfold_tests::{
    cluster::{self, Cluster, PATIENCE, joined},
    platform::{Answer, Platform},
    wordcount::{begin, check, ended, put_text},
};
use serde_json::json;

fn ids(list: &Answer) -> Vec<String> {
    let page = list.json();
    let items = page["items"].as_array().expect("items");
    items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

/// The value of a metric without labels.
async fn metric(gateway: &Platform, name: &str) -> u64 {
    let text = gateway.get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

/// Asks until the answer is as it should be, for twenty seconds at most.
async fn until(gateway: &Platform, path: &str, is: impl Fn(&Answer) -> bool) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = gateway.get(path).await;
        if is(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path}: {} {}", answer.status, answer.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_gateway_answers_for_everything() {
    let cluster = Cluster::start();
    let (a, b) = (cluster.gateway("a"), cluster.gateway("b"));
    let _executors = [cluster.executor("e1", &[]), cluster.executor("e2", &[])];
    joined(&a, 2).await;
    joined(&b, 2).await;
    for gateway in [&a, &b] {
        // Until it sees the other one, it says so.
        until(gateway, "/v1/jobs", |answer| answer.status == 200).await;
    }

    // What was deployed on one can be called on the other at once, and aliases mean the same.
    let first = a.deploy("echo").await.expect(201).json()["version"].clone();
    assert_eq!(b.post("/function/echo", "x").await.expect(200).text(), "x");
    let weights = json!({ "weights": { first.as_str().expect("a version"): 1 } }).to_string();
    b.post("/v1/functions/echo/aliases/stable", weights).await.expect(200);
    assert_eq!(a.post("/function/echo:stable", "y").await.expect(200).text(), "y");
    let manifest = "name = \"echo\"\ntimeout = \"20s\"\n";
    let second = b.deploy_as("echo", manifest).await.json()["version"].clone();
    let called = a.post("/function/echo", "z").await.expect(200);
    assert_eq!(called.headers["fanfold-version"], second.as_str().expect("a version"));

    // Jobs belong to the gateway that accepted them; the other passes requests on.
    let (on_a, on_b) = (a.invoke_async("echo", "of a").await, b.invoke_async("echo", "of b").await);
    for (id, output) in [(&on_a, "of a"), (&on_b, "of b")] {
        for gateway in [&a, &b] {
            assert_eq!(ended(gateway, id).await["state"], "succeeded");
            let read = gateway.get(&format!("/v1/invocations/{id}/output")).await.expect(200);
            assert_eq!(read.text(), output);
            gateway.get(&format!("/v1/jobs/{id}/graph")).await.expect(200);
            gateway.get(&format!("/v1/jobs/{id}/events")).await.expect(200);
            let path = format!("/v1/invocations/{id}/cancel");
            gateway.post(&path, "").await.expect_problem(409, "conflict", "already-finished", "");
        }
    }
    let (of_a, of_b) = (ids(&a.get("/v1/invocations").await), ids(&b.get("/v1/invocations").await));
    assert_eq!(of_a, of_b, "both list all");
    assert!(of_a.contains(&on_a) && of_a.contains(&on_b), "{of_a:?}");
    let page = a.get("/v1/invocations?limit=1").await.json();
    let next = page["next"].as_str().expect("there is more");
    assert_eq!(ids(&b.get(&format!("/v1/invocations?limit=1&after={next}")).await), of_a[1..2]);

    // A key means the same request wherever it arrives.
    let key = [("idempotency-key", "k1")];
    let once = a.send("POST", "/async-function/echo", &key, "keyed").await.expect(202);
    let again = b.send("POST", "/async-function/echo", &key, "keyed").await.expect(202);
    assert_eq!(once.json()["id"], again.json()["id"]);
    let once = b.send("POST", "/function/echo", &key, "keyed").await.expect(200);
    let again = a.send("POST", "/function/echo", &key, "keyed").await.expect(200);
    assert_eq!(once.headers["fanfold-invocation"], again.headers["fanfold-invocation"]);

    // Logs of a synchronous call, and a dead letter, are where they are, too.
    a.deploy("misbehave").await.expect(201);
    let failed = b.post("/function/misbehave", r#"{"do": "panic"}"#).await;
    let id = failed.headers["fanfold-invocation"].to_str().expect("text");
    let logs = a.get(&format!("/v1/invocations/{id}/logs")).await.expect(200);
    assert!(logs.text().contains("asked to panic"), "{}", logs.text());
    let doomed = a.invoke_async("misbehave", r#"{"do": "invalid"}"#).await;
    assert_eq!(ended(&b, &doomed).await["state"], "failed");
    assert_eq!(ids(&b.get("/v1/dead-letters").await), vec![doomed.clone()]);
    b.post(&format!("/v1/dead-letters/{doomed}/retry"), "").await.expect(202);

    let nowhere = "01900000-0000-7000-8000-000000000000";
    b.get(&format!("/v1/jobs/{nowhere}")).await.expect_problem(404, "not-found", "invocation", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_goes_on_with_the_jobs_of_a_dead_one() {
    let cluster = Cluster::start();
    let (a, b) = (cluster.gateway("a"), cluster.gateway("b"));
    let _executors: Vec<Platform> = (1..=4).map(|n| cluster.executor(&format!("e{n}"), &[])).collect();
    joined(&a, 4).await;
    joined(&b, 4).await;
    a.deploy("wordcount").await.expect(201);
    b.deploy("echo").await.expect(201);
    let counts = put_text(&b, 400).await;
    let key = [("idempotency-key", "k1")];
    let keyed = a.send("POST", "/async-function/echo", &key, "once").await.expect(202).json()["id"].clone();
    let job = begin(&a).await;
    // In the middle: some of its tasks were finished so long ago that their commits are in the journal for certain.
    let path = format!("/v1/jobs/{job}");
    let finished = |answer: &Answer| answer.json()["progress"]["finished"].as_u64().expect("a count");
    let some = finished(&until(&a, &path, |answer| finished(answer) >= 20).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = a.get(&path).await.json();
    assert_eq!(before["state"], "running", "too short a job: {before:#}");

    let ran_before = metric(&b, "fanfold_attempts_total").await;
    a.kill();
    let killed = Instant::now();
    let lost = b.get(&path).await;
    assert!(matches!(lost.status, 200 | 503), "{}", lost.text());
    until(&b, &path, |answer| answer.status == 200).await;
    println!(
        "its state was known again {:.1} s after its gateway was killed",
        killed.elapsed().as_secs_f64()
    );
    let goes_on = async || metric(&b, "fanfold_attempts_total").await > ran_before;
    assert!(cluster::until(PATIENCE, goes_on).await, "nobody took over");
    println!("its tasks ran again {:.1} s after that kill", killed.elapsed().as_secs_f64());
    check(&b, &job, &counts).await;
    let tasks = b.get(&path).await.json()["progress"]["tasks"].as_u64().expect("a count");
    // Each unfinished task and the driver: nothing that was finished ran again.
    let ran = metric(&b, "fanfold_attempts_total").await - ran_before;
    println!("{some} of {tasks} tasks were finished before; {ran} attempts after it");
    assert!(ran <= tasks - some + 1, "{ran} attempts for {} unfinished tasks", tasks - some);
    let again = b.send("POST", "/async-function/echo", &key, "once").await.expect(202);
    assert_eq!(again.json()["id"], keyed, "the key is remembered by who took over");
    b.get("/v1/invocations").await.expect(200);

    // It comes back, and gets back what is its own.
    let mid = begin(&b).await;
    let a = cluster.gateway("a");
    joined(&a, 4).await;
    check(&a, &mid, &counts).await;
    let of_job = until(&b, &path, |answer| answer.status == 200).await;
    assert_eq!(of_job.json()["state"], "succeeded");
    let again = a.send("POST", "/async-function/echo", &key, "once").await.expect(202);
    assert_eq!(again.json()["id"], keyed);
    let fresh = a.invoke_async("echo", "fresh").await;
    assert_eq!(ended(&b, &fresh).await["state"], "succeeded");
}
