//! A cluster of real processes: what users do works as on one machine, and goes on when processes are killed.

use std::time::Duration;

use fanfold_tests::{
    cluster::{Cluster, joined},
    platform::Platform,
    wordcount::{begin, check, ended, put_text},
};

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_on_executors_of_other_processes() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    gateway.get("/readyz").await.expect(200);
    // Two of one name would take the journal from each other.
    let second = cluster.try_gateway("g0").err().expect("it must not start");
    assert_eq!(second.code(), Some(1));
    gateway.get("/readyz").await.expect(200);
    let lonely = gateway.post("/function/echo", "x").await;
    lonely.expect_problem(404, "not-found", "function", "");
    let _executors = [cluster.executor("e1", &[]), cluster.executor("e2", &[])];
    joined(&gateway, 2).await;
    for name in ["echo", "hello-http", "misbehave", "noop", "thumbnail"] {
        gateway.deploy(name).await.expect(201);
    }
    let large = vec![7; 3 << 20];
    assert_eq!(gateway.post("/function/echo", large.clone()).await.expect(200).body, large);
    let hello = gateway.get("/function/hello-http/").await.expect(200);
    assert!(hello.headers.contains_key("server-timing"), "{:?}", hello.headers);
    // A guest's failure is the same from afar, with its log lines.
    let failed = gateway.post("/function/misbehave", r#"{"do": "panic"}"#).await;
    let id = failed.headers["fanfold-invocation"].to_str().expect("text").to_owned();
    assert_eq!(failed.json()["kind"], "guest", "{}", failed.text());
    let logs = gateway.get(&format!("/v1/invocations/{id}/logs")).await.expect(200);
    assert!(logs.text().contains("asked to panic"), "{}", logs.text());
    // A driver's tasks are spread over both.
    let tasks = gateway.post("/function/noop", r#"{"tasks":200,"lone":false}"#).await.expect(200);
    assert_eq!(tasks.json()["tasks"], 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_survives_its_executors_and_its_gateway() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let mut executors: Vec<Platform> = (1..=4).map(|n| cluster.executor(&format!("e{n}"), &[])).collect();
    joined(&gateway, 4).await;
    gateway.deploy("wordcount").await.expect(201);
    gateway.deploy("echo").await.expect(201);
    let counts = put_text(&gateway, 30).await;

    // Undisturbed first, so that what follows is known to have something to disturb.
    let job = begin(&gateway).await;
    check(&gateway, &job, &counts).await;

    let job = begin(&gateway).await;
    for round in 5..=8 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        executors.remove(0).kill();
        executors.push(cluster.executor(&format!("e{round}"), &[]));
    }
    check(&gateway, &job, &counts).await;

    // A result that is too large for the journal stays readable when its executor joins the next gateway.
    let large = vec![7; 300_000];
    let kept = gateway.post("/async-function/echo", large.clone()).await.expect(202).json();
    let kept = kept["id"].as_str().expect("an id");
    assert_eq!(ended(&gateway, kept).await["state"], "succeeded");

    let job = begin(&gateway).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    gateway.kill();
    let gateway = cluster.gateway("g0");
    check(&gateway, &job, &counts).await;
    let output = gateway.get(&format!("/v1/invocations/{kept}/output")).await.expect(200);
    assert_eq!(output.body, large);

    // An executor that is told to stop hands over what it has.
    let job = begin(&gateway).await;
    executors.remove(0).terminate();
    check(&gateway, &job, &counts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_redis_costs_nothing() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let _executors: Vec<Platform> = (1..=2).map(|n| cluster.executor(&format!("e{n}"), &[])).collect();
    joined(&gateway, 2).await;
    gateway.deploy("echo").await.expect(201);
    let mut ids = Vec::new();
    for n in 0..200 {
        if n % 10 == 0 {
            cluster.redis.flush();
        }
        let accepted = gateway.post("/async-function/echo", format!("{n}")).await.expect(202);
        ids.push(accepted.json()["id"].as_str().expect("an id").to_owned());
    }
    for (n, id) in ids.iter().enumerate() {
        let view = ended(&gateway, id).await;
        assert_eq!(view["state"], "succeeded", "{view:#}");
        let output = gateway.get(&format!("/v1/invocations/{id}/output")).await.expect(200);
        assert_eq!(output.text(), n.to_string());
    }
    // A newcomer still finds the gateway.
    let _late = cluster.executor("late", &[]);
    joined(&gateway, 3).await;
}
